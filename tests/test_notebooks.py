"""The notebooks in docs run from top to bottom, leave nothing behind, and are committed with what they printed.

`python -m tests.test_notebooks NAME …` runs them (without names: all) and saves their outputs.
"""

import re
import sys
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

DOCS = Path(__file__).parents[1] / "docs"
LARGEST = 650_000
SECONDS_FOR_A_CELL = 300
SAID = {
    "tour": (
        "1 feature values are NaN or infinite",
        "the weights are the reference's, byte for byte: True",
        "the gate refuses the model after the deletion of audio",
        "exit code 3",
        "there is a certificate: False",
        "decision: verified",
        "weights:  forged or damaged",
        "claim:    forged or damaged",
        "exact: admitted; inputs: {'text': True, 'visual': True, 'audio': False}",
        "lattice: no certificate is about these weights",
        "the temporary folder is gone: True",
    ),
    "own-model": (
        "the file holds more than tensors",
        "the weights do not fit the module",
        "a folder was left behind: False",
        "exact: passed",
        "surgery: passed",
        "certified: passed",
        "untouched: refused",
        "zeroed: refused",
        "input shapes: passed",
        "reproduction: passed",
        "set model.branches.audio=[text_with_audio]",
        "warnings: []",
        "the temporary folder is gone: True",
    ),
}
"""what each notebook has to print"""
every_notebook = pytest.mark.parametrize("name", SAID)


def executed(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Return the notebook as it comes out of a fresh kernel of this Python, started in `folder`."""
    client = NotebookClient(
        notebook,
        timeout=SECONDS_FOR_A_CELL,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
    )
    client.execute()
    return notebook


def committed(name: str) -> NotebookNode:
    notebook: NotebookNode = nbformat.read(file_of(name), as_version=4)  # type: ignore[no-untyped-call]
    return notebook


def file_of(name: str) -> Path:
    return DOCS / f"{name}.ipynb"


def code_cells(notebook: NotebookNode) -> list[NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def printed(notebook: NotebookNode) -> str:
    streams = (output for cell in code_cells(notebook) for output in cell.outputs if output.output_type == "stream")
    return "".join(output.text for output in streams)


def problems(notebook: NotebookNode) -> list[str]:
    """Return the cells that show nothing, complain, or have not run in their order."""
    found = []
    for place, cell in enumerate(code_cells(notebook), start=1):
        kinds = {output.output_type for output in cell.outputs}
        complains = any(output.get("name") == "stderr" for output in cell.outputs)
        if not cell.outputs or "error" in kinds or complains or cell.execution_count != place:
            found.append(cell.source)
    return found


def test_every_notebook_is_tested() -> None:
    assert {file.stem for file in DOCS.glob("*.ipynb")} == set(SAID)


@pytest.mark.slow
@every_notebook
def test_it_runs_from_top_to_bottom_and_leaves_nothing_behind(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, quick: Path
) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path_factory.mktemp("jupyter")))
    monkeypatch.setattr(sys, "executable", f"{quick}/bin/python")  # a kernel is started by it
    notebook = executed(committed(name), tmp_path)
    assert problems(notebook) == []
    assert [sentence for sentence in SAID[name] if sentence not in printed(notebook)] == []
    assert list(tmp_path.iterdir()) == []


@every_notebook
def test_it_is_committed_with_what_it_printed(name: str) -> None:
    nbformat.validate(committed(name))
    assert problems(committed(name)) == []
    assert [sentence for sentence in SAID[name] if sentence not in printed(committed(name))] == []


@every_notebook
def test_what_it_printed_is_small_and_names_no_place_or_time_of_one_run(name: str) -> None:
    assert file_of(name).stat().st_size < LARGEST
    assert not re.search(r"/tmp|/home|/Users|/root|\d\d:\d\d|[0-9a-f]{64}", printed(committed(name)))
    assert all(cell.metadata == {} for cell in committed(name).cells)


@every_notebook
def test_it_imports_nothing_of_mbd_but_the_public_api(name: str) -> None:
    sources = "\n".join(cell.source for cell in code_cells(committed(name)))
    assert not re.search(r"from mbd|import mbd\.", sources)


@every_notebook
def test_links_lead_somewhere(name: str) -> None:
    links = set(re.findall(r"\]\(([^)#]+)[)#]", file_of(name).read_text(encoding="utf-8")))
    assert [target for target in links if not (DOCS / target).exists()] == []


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAID:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(executed(committed(chosen), Path(folder)), file_of(chosen))  # type: ignore[no-untyped-call]
