"""The paper's numbers are those of the paper, and its averages are held against its own rows."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from studies import printed
from studies.printed import Short


@pytest.fixture
def paper(real_data: Path) -> str:
    """The paper's source, which the repository does not hold."""
    return (real_data / "missing-by-design.tex").read_text("utf-8")


def numbers(text: str) -> list[float]:
    plain = re.sub(r"\\cite\{[^}]*\}|\{,\}", "", text.replace("\\pm", " "))
    return [float(found) for found in re.findall(r"(?<![\w.])\d+(?:\.\d+)?", plain)]


def rows(text: str, label: str) -> list[list[float]]:
    """Return the numbers of every row of the table with this label (or caption) in the paper."""
    place = text.index(f"\\label{{{label}}}" if label.startswith("tab:") else label)
    start = text.index("\\midrule", place)
    lines = text[start : text.index("\\bottomrule", start)].split("\\\\")
    return [found for line in lines if (found := numbers(line))]


@pytest.mark.real_data
def test_full_modality_is_as_printed(paper: str) -> None:
    both = zip(*(table.values() for table in printed.FULL_MODALITY.values()), strict=True)
    assert rows(paper, "tab:mosi_mosei") == [[*mosi, *mosei] for mosi, mosei in both]
    ours = [list(row) for row in printed.IEMOCAP.values()]
    assert [row[-2:] for row in rows(paper, "tab:iemocap")] == ours


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("label", "table"),
    [("tab:fixed_missing", printed.FIXED_MISSING), ("tab:varying_missing", printed.VARYING_RATE)],
)
def test_missing_modalities_are_as_printed(label: str, table: dict[str, dict[str, Short]], paper: str) -> None:
    found = [row[-21:] for row in rows(paper, label)]
    assert found == [[value for cell in row.values() for value in cell] for row in table.values()]


@pytest.mark.real_data
@pytest.mark.parametrize(
    ("label", "table"), [("tab:ablation_mbd", printed.ABLATION), ("tab:noise_robust", printed.CORRUPTION)]
)
def test_regimes_are_as_printed(label: str, table: dict[str, printed.Regimes], paper: str) -> None:
    assert rows(paper, label) == [[*row.fix, *row.mr] for row in table.values()]


@pytest.mark.real_data
def test_deletion_is_as_printed(paper: str) -> None:
    expected = [
        [
            *([] if epsilon is None else [epsilon]),
            *(part for s in row[:4] for part in (s.mean, s.deviation)),
            row.reconstruction,
        ]
        for epsilon, row in printed.DELETION.items()
    ]
    assert rows(paper, "tab:certify_expanded") == expected


@pytest.mark.real_data
def test_the_scan_and_the_proxy_are_as_printed(paper: str) -> None:
    scan = [[row.value, row.acc2.mean, row.acc2.deviation, row.epsilon] for row in printed.SENSITIVITY]
    assert rows(paper, "tab:sensitivity") == scan
    proxy = [[row.chi_max, row.max_relative_error, row.over_delete, row.spearman] for row in printed.PROXY.values()]
    assert rows(paper, "Table A2. SwiftPrune") == proxy
    assert all(row.within_bound for row in printed.PROXY.values())


@pytest.mark.real_data
def test_what_the_text_says_is_in_the_text(paper: str) -> None:
    runtime = printed.RUNTIME
    assert f"consumes {runtime.total:g} s in total (saliency computation {runtime.saliency:g} s" in paper
    assert f"calibration {runtime.sensitivity:g} s, parameter surgery {runtime.surgery:g} s" in paper
    assert f"requires {runtime.retraining / 3600:g} h" in paper
    assert f"{runtime.ratio:g}\\times" in paper
    assert f"\\approx {printed.P_DRIFT:g}" in paper
    assert f"into {printed.CORRUPTED_SHARE:g}\\% of test samples" in paper
    assert f"\\le {printed.RECONSTRUCTION_BOUND:g}" in paper
    assert f"less than {printed.SENSITIVITY_ACC2:g}\\%" in paper
    assert f"at most {printed.PROXY_BOUND:g}\\%" in paper
    assert f"\\le {printed.OVER_DELETE_BOUND:g}\\%" in paper
    assert f"\\rho={printed.PROXY_SCATTER.spearman:g}$ and {printed.PROXY_SCATTER.inside:g}\\% of points" in paper


def test_the_phases_of_the_runtime_add_up() -> None:
    runtime = printed.RUNTIME
    assert runtime.saliency + runtime.sensitivity + runtime.surgery == runtime.total
    assert runtime.retraining / runtime.total == pytest.approx(runtime.ratio, rel=0.01)


def test_only_averages_of_the_papers_own_method_are_wrong() -> None:
    slips = printed.slips()
    assert {slip.method for slip in slips} == {printed.OURS}
    found = {(slip.table, slip.metric): (slip.printed, round(slip.recomputed, 2)) for slip in slips}
    assert found["fixed missing patterns", "acc7"] == (37.8, 36.65)
    assert found["varying missing rates", "acc2"] == (80.9, 82.11)
    assert ("fixed missing patterns", "acc2") not in found


def test_cells_that_are_not_the_best_of_their_row() -> None:
    found = {(cell.row, cell.metric, cell.better) for cell in printed.not_best()}
    assert found == {("visual", "acc7", "EUAR"), ("audio+visual", "acc7", "EUAR")}


def test_margins_over_the_best_rival() -> None:
    margins = printed.margins(printed.IEMOCAP, ("wa", "ua"))
    assert margins == {"wa": pytest.approx(3.5), "ua": pytest.approx(2.4)}


scores = st.integers(0, 1000).map(lambda tenths: tenths / 10)
tables = st.lists(st.builds(Short, scores, scores, scores), min_size=1, max_size=9)


@given(tables)
@settings(deadline=None, max_examples=50)
def test_an_average_of_rounded_rows_is_no_slip_and_one_that_is_off_is(cells: list[Short]) -> None:
    mean = printed.averages({str(k): {"A": cell} for k, cell in enumerate(cells)})["A"]
    table = {str(k): {"A": cell} for k, cell in enumerate(cells)}
    right = {**table, printed.AVERAGE: {"A": Short(*(round(value, 1) for value in mean))}}
    assert printed.slips({"t": right}) == []
    wrong = {**table, printed.AVERAGE: {"A": Short(mean.acc2 + 0.11, mean.f1, mean.acc7 - 0.11)}}
    assert [slip.metric for slip in printed.slips({"t": wrong})] == ["acc2", "acc7"]
