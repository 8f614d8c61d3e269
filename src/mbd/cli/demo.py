"""`mbd demo`: the story of a person on this machine, in whatever folder; with --keep to look around in the console.

A small model is trained, registered, and served with a worker beside it. A speaker says "forget my voice" over HTTP: a
model without these recordings is certified and answers from then on, also about audio, which others still allow. Then
every voice is to be forgotten: audio is refused, with the certificate as the reason, and text and visual are answered.
At last that certificate is withdrawn by mistake: nothing answers, audio stays revoked, and the worker carries the
request out again. With --keep the server then stays up. Everything is below build/demo, on loopback.
"""

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Any

import click

from mbd.cli.options import log_options
from mbd.formats.verdict import VERDICTS, Decision

FOLDER, NAME = Path("build/demo"), "sentiment"
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
    f"certificate.model={NAME}",
    "certificate.issuer.name=Example issuer (mbd demo)",
    f"certificate.signers=[file:{FOLDER}/keys/signer.pem]",
    f"certificate.log_signer=file:{FOLDER}/keys/log.pem",
    f"certificate.trust={FOLDER}/keys/trust.json",
    f"certificate.private={FOLDER}/private",
    f"store.url=file://{FOLDER}/store",
    f"purge.tombstones={FOLDER}/tombstones",
    f"serving.tokens={FOLDER}/keys/tokens.json",
    "serving.weights=true",
    "serving.poll_seconds=1",
    f"serving.inference.models=[{NAME}]",
    "serving.inference.poll_seconds=1",
)
PATIENCE_SECONDS = 300
ALL, OTHERS = ("text", "audio", "visual"), ("text", "visual")


def run(*arguments: str, status: int = 0) -> str:
    """Run a command that ends with a status, and return what it prints."""
    done = subprocess.run(mbd(*arguments), check=False, stdout=subprocess.PIPE, text=True)
    if done.returncode != status:
        raise SystemExit(f"mbd {arguments[0]} has ended with {done.returncode}")
    return done.stdout


def mbd(*arguments: str) -> list[str]:
    """Return a command line."""
    sets = [part for one in SETTINGS for part in ("--set", one)]
    return [sys.executable, "-c", "from mbd.cli import main; main()", "-q", *arguments, *sets]


@contextmanager
def served() -> Iterator[str]:
    """Run the server with a worker; yield its address."""
    command = mbd("serve", "--port", "0", "--worker", "--features", f"{FOLDER}/features")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout  # noqa: S101 -- it is a pipe
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit("the server did not start")
            yield address
        finally:
            process.terminate()
            process.wait()  # also after Ctrl-C, which `with` would not wait for


def call(url: str, token: str = "", document: object = None) -> Any:  # noqa: ANN401 -- JSON
    """Ask the server; return its answer."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = None if document is None else json.dumps(document).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30) as response:  # noqa: S310
        return json.load(response)


def wait_for(*urls: str) -> None:
    """Wait until these addresses answer with success."""
    end = time.monotonic() + PATIENCE_SECONDS
    while urls:
        try:
            urllib.request.urlopen(urls[0], timeout=5).close()  # noqa: S310
            urls = urls[1:]
        except OSError:
            if time.monotonic() > end:
                raise SystemExit("the server does not get ready") from None
            time.sleep(0.2)


def infer(url: str, modalities: Sequence[str], widths: dict[str, int]) -> dict[str, Any]:
    """Ask the model about one row, print the answer, and return it."""
    inputs = [
        {"name": modality, "datatype": "FP32", "shape": [1, widths[modality]], "data": [0.5] * widths[modality]}
        for modality in modalities
    ]
    answer: dict[str, Any]
    try:
        answer = call(f"{url}/v2/models/{NAME}/infer", document={"inputs": inputs})
        text = f"{answer['outputs'][0]['data'][0]:+.3f} by release {answer['model_version'][:16]}"
    except urllib.error.HTTPError as error:
        answer = json.load(error)
        text = f"{answer['status']}, {answer['error']}"
    print(f"   {' + '.join(modalities)}: {text}")
    return answer


def expect(answer: dict[str, Any], **members: object) -> None:
    """Check an answer about the model."""
    if any(answer.get(key) != value for key, value in members.items()):
        raise SystemExit(f"the server does not answer as the log says: {members} is not in {answer}")


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


def prepare() -> str:
    """Make keys, data and a registered model; return a token."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    (FOLDER / "store").mkdir(parents=True)
    print("== keys, synthetic data, and a registered model that takes text, audio and visual")
    run("keys", "new", "--out", f"{FOLDER}/keys")
    run("features", "--out", f"{FOLDER}/features")
    run("train", "--features", f"{FOLDER}/features", "--out", f"{FOLDER}/model")
    print("   " + run("register", "--model", f"{FOLDER}/model").splitlines()[0])
    roles = (part for role in ("submit", "read", "operate") for part in ("--role", role))
    return run("serve", "token", "new", "--name", "demo", *roles).strip()


def forget(url: str, token: str, **wanted: str) -> str:
    """Enter a request about audio and wait until it is certified and served; return the digest of the certificate."""
    new = {"model": NAME, "modalities": ["audio"], "reason": "withdrawn consent", **wanted}
    request = carried_out(url, token, call(f"{url}/requests", token, new)["id"])
    if request["state"] != "certified":
        raise SystemExit(f"the request is {request['state']}: {request['history'][-1]['note']}")
    digest: str = request["certificate"]
    wait_for(f"{url}/v2/models/{NAME}/versions/{digest}/ready")
    return digest


def verify(url: str, digest: str, verdict: Decision) -> None:
    """Verify a certificate over HTTP with the trust file alone, and print the verdict that it is to have."""
    status = VERDICTS[verdict].exit_code
    place = f"{url}/store/certificates/{digest}"
    print("   " + run("verify", place, "--trust", f"{FOLDER}/keys/trust.json", status=status).splitlines()[0])


def next_release(url: str, withdrawn: str) -> str:
    """Wait until a release after a withdrawn one is served; return the digest of its certificate.

    Until then nothing may answer about audio.
    """
    end = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        model = call(f"{url}/models/{NAME}")
        if "audio" not in model["revoked"]:
            raise SystemExit("audio is no longer revoked")
        if model["current"] and model["current"]["digest"] != withdrawn:
            digest: str = model["current"]["digest"]
            wait_for(f"{url}/v2/models/{NAME}/versions/{digest}/ready")
            return digest
        time.sleep(0.2)
    raise SystemExit("the request is not carried out again")


@click.command()
@click.option("--keep", is_flag=True, help="Leave the server and its console up at the end.")
@log_options(hidden=True)
def command(*, keep: bool) -> None:
    """Show a person's story: a model is served, "forget my voice" is entered, carried out, certified and verified.

    A small model of synthetic data, server, worker and client run on this machine, in build/demo.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # `served` stops the server then
    with suppress(KeyboardInterrupt):
        _tell(keep=keep)


def _tell(*, keep: bool) -> None:
    start, token = time.monotonic(), prepare()
    from mbd.features.contract import FeatureSet

    speaker = str(FeatureSet.open(FOLDER / "features").split("train").groups[0])
    with served() as url:
        wait_for(f"{url}/readyz", f"{url}/v2/models/{NAME}/ready")
        widths = {one["name"]: one["shape"][-1] for one in call(f"{url}/v2/models/{NAME}")["inputs"]}
        print(f"== served at {url}, with a worker")
        infer(url, ALL, widths)
        print(f'== "forget my voice", says speaker {speaker}: a model without these recordings answers')
        first = forget(url, token, subject=speaker, requester="case-17")
        expect(infer(url, ALL, widths), model_version=first)
        print('== "forget every voice": audio is refused')
        second = forget(url, token, requester="case-18")
        expect(infer(url, ALL, widths), status=422, certificate=second)
        expect(infer(url, OTHERS, widths), model_version=second)
        print("== verified over HTTP, with the trust file alone")
        verify(url, first, "replaced")
        verify(url, second, "verified")
        print("== that certificate is withdrawn, by mistake: audio stays revoked, and the worker certifies again")
        run("certificate", "revoke", second, "--reason", "withdrawn by mistake")
        third = next_release(url, second)
        expect(infer(url, ALL, widths), status=422, certificate=third)
        expect(infer(url, OTHERS, widths), model_version=third)
        verify(url, second, "withdrawn")
        verify(url, third, "verified")
        with urllib.request.urlopen(f"{url}/certificates/{third}/page", timeout=30) as page:  # noqa: S310
            (FOLDER / "certificate.html").write_bytes(page.read())
        print(f"\nopen {FOLDER}/certificate.html: the certificate's page, which verifies it in the browser")
        print(f"{time.monotonic() - start:.0f} seconds in all")
        if keep:
            print(f"the server stays up: open {url} and sign in with {token} (Ctrl-C stops it)", flush=True)
            Event().wait()
