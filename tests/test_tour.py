"""The notebook docs/tour.ipynb runs from top to bottom, leaves nothing behind, and is committed with what it printed.

`python -m tests.test_tour` runs it and saves its outputs.
"""

import re
import tempfile
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tour.ipynb"
LARGEST = 600_000
SECONDS_FOR_A_CELL = 300
SAID = (
    "1 feature values are NaN or infinite",
    "the weights are the reference's, byte for byte: True",
    "the gate refuses the model after the deletion of audio",
    "exit code 3",
    "there is a certificate: False",
    "decision: verified",
    "weights:  failed",
    "claim:    failed",
    "exact: admitted; inputs: {'text': True, 'visual': True, 'audio': False}",
    "lattice: no certificate is about these weights",
    "the temporary folder is gone: True",
)


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


def committed() -> NotebookNode:
    notebook: NotebookNode = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
    return notebook


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


def test_it_runs_from_top_to_bottom_and_leaves_nothing_behind(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(variable, str(tmp_path_factory.mktemp("jupyter")))
    notebook = executed(committed(), tmp_path)
    assert problems(notebook) == []
    assert [sentence for sentence in SAID if sentence not in printed(notebook)] == []
    assert list(tmp_path.iterdir()) == []


def test_it_is_committed_with_what_it_printed() -> None:
    nbformat.validate(committed())
    assert problems(committed()) == []
    assert [sentence for sentence in SAID if sentence not in printed(committed())] == []


def test_what_it_printed_is_small_and_names_no_place_or_time_of_one_run() -> None:
    assert NOTEBOOK.stat().st_size < LARGEST
    assert not re.search(r"/tmp|/home|/Users|/root|\d\d:\d\d|[0-9a-f]{64}", printed(committed()))
    assert all(cell.metadata == {} for cell in committed().cells)


def test_it_imports_nothing_of_mbd_but_the_public_api() -> None:
    sources = "\n".join(cell.source for cell in code_cells(committed()))
    assert not re.search(r"from mbd|import mbd\.", sources)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#]+)\)", NOTEBOOK.read_text(encoding="utf-8")))))
def test_links_lead_somewhere(target: str) -> None:
    assert (NOTEBOOK.parent / target).exists()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        nbformat.write(executed(committed(), Path(folder)), NOTEBOOK)  # type: ignore[no-untyped-call]
