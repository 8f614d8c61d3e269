"""The whole story on this machine, in about a minute: `make demo`.

A small model is trained and served with a worker beside it. A client says "forget my voice" over HTTP, waits until
that is certified, verifies the certificate over HTTP, and opens its page. Everything is below build/demo, on loopback.
"""

import json
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FOLDER = Path("build/demo")
SETTINGS = (
    "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
    "features.source.synthetic.rows={train: 400, valid: 100, test: 200, calibration: 64}",
    "model.backbone=lattice",
    "model.lattice.components=4",
    "model.lattice.landmarks=8",
    "deletion.method=exact",
    "evaluation.figures=false",
    "attacks.figures=false",
    "attacks.resamples=200",
    f"certificate.signers=[file:{FOLDER}/keys/signer.pem]",
    f"certificate.log_signer=file:{FOLDER}/keys/log.pem",
    f"certificate.trust={FOLDER}/keys/trust.json",
    f"certificate.private={FOLDER}/private",
    f"store.url=file://{FOLDER}/store",
    f"purge.tombstones={FOLDER}/tombstones",
    f"serving.tokens={FOLDER}/keys/tokens.json",
    "serving.weights=true",
    "serving.poll_seconds=1",
)
PATIENCE_SECONDS = 300


def mbd(*arguments: str, settings: bool = True) -> list[str]:
    """Return a command line."""
    sets = [part for one in SETTINGS for part in ("--set", one)] if settings else []
    return [sys.executable, "-c", "from mbd.cli import main; main()", "-q", *arguments, *sets]


def run(*arguments: str) -> str:
    """Run a command and return what it prints."""
    return subprocess.run(mbd(*arguments), check=True, stdout=subprocess.PIPE, text=True).stdout


@contextmanager
def served() -> Iterator[str]:
    """Run the server with a worker; yield its address."""
    command = mbd("serve", "--port", "0", "--worker", "--features", f"{FOLDER}/features", "--model", f"{FOLDER}/model")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout  # noqa: S101 -- it is a pipe
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit("the server did not start")
            yield address
        finally:
            process.terminate()


def call(url: str, token: str = "", document: object = None) -> Any:  # noqa: ANN401 -- JSON
    """Ask the server; return its answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:  # noqa: S310
        return json.load(response)


def ready(url: str) -> None:
    """Wait until the server has read its store."""
    for _ in range(PATIENCE_SECONDS):
        try:
            urllib.request.urlopen(f"{url}/readyz", timeout=5).close()  # noqa: S310
        except OSError:
            time.sleep(0.2)
        else:
            return
    raise SystemExit("the server does not get ready")


def carried_out(url: str, token: str, identifier: str) -> dict[str, Any]:
    """Wait until a request has ended, and print each state on the way."""
    state, end = "", time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        request: dict[str, Any] = call(f"{url}/requests/{identifier}", token)
        if request["state"] != state:
            state = request["state"]
            print(f"   request {identifier}: {state}")
        if state not in ("received", "running"):
            return request
        time.sleep(0.2)
    raise SystemExit("the request is not carried out")


def main() -> None:
    """Tell the story."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "store").mkdir(parents=True)
    print("== keys, synthetic data, and a model that takes text, audio and visual")
    run("keys", "new", "--out", f"{FOLDER}/keys")
    run("features", "--out", f"{FOLDER}/features")
    run("train", "--features", f"{FOLDER}/features", "--out", f"{FOLDER}/model")
    token = run("serve", "token", "new", "--name", "demo", "--role", "submit", "--role", "read").strip()
    with served() as url:
        ready(url)
        print(f"== served at {url}, with a worker")
        (model,) = call(f"{url}/models")["models"]
        print(f"   model {model['name']} takes {', '.join(model['takes'])}")
        print('== "forget my voice"')
        new = {"model": model["name"], "modalities": ["audio"], "reason": "withdrawn consent", "requester": "case-17"}
        request = carried_out(url, token, call(f"{url}/requests", token, new)["id"])
        if request["state"] != "certified":
            raise SystemExit(f"the request is {request['state']}: {request['history'][-1]['note']}")
        digest, known = request["certificate"], call(f"{url}/models/{model['name']}")
        while known["current"] is None:
            time.sleep(0.2)
            known = call(f"{url}/models/{model['name']}")
        print(f"   model {known['name']} takes {', '.join(known['takes'])}; revoked: {', '.join(known['revoked'])}")
        print("== verified over HTTP, with the trust file alone")
        place = f"{url}/store/certificates/{digest}"
        print("\n".join(run("verify", place, "--trust", f"{FOLDER}/keys/trust.json").splitlines()[:5]))
        with urllib.request.urlopen(f"{url}/certificates/{digest}/page", timeout=30) as page:  # noqa: S310
            (FOLDER / "certificate.html").write_bytes(page.read())
    print(f"\nopen {FOLDER}/certificate.html: the certificate's page, which verifies it in the browser")


if __name__ == "__main__":
    main()
