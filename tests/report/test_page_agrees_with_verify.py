"""Two verifiers, one answer: `mbd verify --offline` and the script of the page, over all goldens and random mutations.

They may differ in one direction only: what the page says that it leaves to `mbd verify` (structure, budget, gate, the
details of the schema) can fail there and pass here. MBD_MUTATIONS sets how many mutations are tried.
"""

import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from mbd.certificate.verification import from_folder, verify_bundle
from mbd.errors import MbdError
from mbd.files import sha256_file
from mbd.formats.files import WEIGHTS
from mbd.randomness import stream
from mbd.trust.trust_file import read_trust
from mbd.verifier.checks import REAUDIT
from mbd.verifier.reader import CANONICAL, CHECKPOINT, INCLUSION, SCHEMA, VALIDITY
from mbd.verifier.verdict import SIGNATURES, Verdict
from tests.certificate.tampering import (
    GONE,
    Mutation,
    TamperingCase,
    any_of,
    exchanged,
    in_fields,
    in_statement,
    read_tree,
)
from tests.golden.certificates.cases import all_cases, assemble, read_case
from tests.report.page_in_node import NODE, NodePage, PageVerdict, page_in_node

pytestmark = pytest.mark.skipif(not NODE, reason="needs Node.js")
MUTATIONS = int(os.environ.get("MBD_MUTATIONS", "100"))
SHARED = (CANONICAL, SIGNATURES, VALIDITY, INCLUSION, CHECKPOINT, REAUDIT)
HERE = {*SHARED, "trust file"}
WHOLE = ("bundle/certificate.json", "bundle/proof.json", "model/model.safetensors", "trust.json", "bundle/report.md")
KINDS: tuple[Mutation, ...] = (
    any_of(list(WHOLE)),
    in_statement,
    in_fields("bundle/certificate.json"),
    in_fields("bundle/proof.json"),
    in_fields("trust.json"),
    exchanged,
)


@pytest.fixture(scope="module")
def node() -> Iterator[NodePage]:
    with page_in_node() as page:
        yield page


def by_python(folder: Path, at: datetime) -> Verdict | None:
    """Return the verdict of `mbd verify --offline`; None if it ends with an error."""
    try:
        trust = read_trust(folder / "trust.json") if (folder / "trust.json").exists() else None
        return verify_bundle(from_folder(folder / "bundle", model_in(folder)), trust, at=at)
    except MbdError:
        return None


def by_page(node: NodePage, folder: Path, at: datetime) -> PageVerdict:
    """Return what the page says of the same files."""
    files = files_in(folder / "bundle") | {
        name: path for name, path in files_in(folder).items() if name == "trust.json"
    }
    if model_in(folder):
        files[WEIGHTS] = folder / "model" / WEIGHTS
    certificate = files.get("certificate.json")
    digest = sha256_file(certificate) if certificate else ""
    return node.verify(files, digest, at)


def model_in(folder: Path) -> Path | None:
    """Return the folder of the model; without weights, no model is given."""
    return folder / "model" if (folder / "model" / WEIGHTS).exists() else None


def files_in(folder: Path) -> dict[str, Path]:
    return {path.name: path for path in folder.iterdir() if path.is_file()}


def disagreement(python: Verdict | None, page: PageVerdict) -> str | None:
    """Say in what two verdicts differ; None: they agree."""
    if python is None:
        return "Python ends with an error" if page.genuine else None
    if python.genuine and not page.genuine:
        return "only Python finds it genuine"
    if python.check(SCHEMA).outcome != "passed" or page.outcomes["certificate can be read"] != "passed":
        return None  # the page does not know the whole schema, and finds genuine only what was signed
    seen = [check.name for check in python.problems if check.name in HERE or check.name.startswith("digest of")]
    if page.genuine and seen:
        return f"only the page finds it genuine, in spite of {seen}"
    different = [name for name in SHARED if python.check(name).outcome != page.outcomes[name]]
    return f"they differ in {different}" if different else None


@pytest.mark.parametrize("folder", all_cases(), ids=lambda folder: folder.name)
def test_they_agree_on_every_golden_certificate(folder: Path, node: NodePage, tmp_path: Path) -> None:
    case = assemble(folder, tmp_path)
    python, page = by_python(tmp_path, case.at), by_page(node, tmp_path, case.at)
    assert disagreement(python, page) is None, (python, page)
    assert page.genuine or not python or not python.genuine
    if case.problem is None or case.problem in SHARED or case.problem.startswith("digest of"):
        assert page.decision == case.decision


def test_they_agree_on_random_mutations(node: NodePage, tmp_path: Path) -> None:
    good = [folder for folder in all_cases() if read_case(folder).base is None]
    scenes = []
    for folder in good:
        place = tmp_path / folder.name
        case = assemble(folder, place)
        names = {"trust.json": (place / "trust.json").read_bytes()}
        weights = {f"model/{WEIGHTS}": (place / "model" / WEIGHTS).read_bytes()}
        genuine = read_tree(place / "bundle", "bundle") | weights | names  # model.json is in the bundle as well
        scenes.append((TamperingCase(place, genuine, [], "", read_trust(place / "trust.json")), case.at))
    for one, _ in scenes:
        one.others.extend(other.genuine for other, _ in scenes if other is not one)
    draw, accepted = stream(16, "two verifiers"), 0
    for number in range(MUTATIONS):
        scene, at = scenes[number % len(scenes)]
        mutated = KINDS[int(draw.integers(len(KINDS)))](scene, draw)
        scene.lay_out(mutated)
        python, page = by_python(scene.folder, at), by_page(node, scene.folder, at)
        scene.lay_out({name: scene.genuine.get(name, GONE) for name in mutated})
        assert disagreement(python, page) is None, (number, sorted(mutated), python, page)
        accepted += page.genuine
    assert accepted < MUTATIONS / 10
