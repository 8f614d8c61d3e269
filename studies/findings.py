"""The paper's claims: `python -m studies.findings [FOLDER …]` writes docs/findings.md and studies/findings.md.

The first is the handbook's chapter: every claim with its verdicts. The second has data, tables and reasons.
A FOLDER is what `make study` leaves below studies/build; without any, every one that has a page, synthetic data first.
All numbers and verdicts are those of the study.json files; the pictures are those of the first folder, made small.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from mbd.cli import run_command
from mbd.errors import UsageError
from mbd.features.contract import FeatureSet
from mbd.files import write_file
from studies.claims import OWN_TABLE
from studies.layout import ROOT
from studies.outcome import Finding, Verdict
from studies.plan import SYNTHETIC, called, command_about
from studies.written import Study, counted, read_studies

PAGE, RECORD = Path("docs/findings.md"), Path("studies/findings.md")
PICTURES = Path("docs/pictures")
LARGEST_PICTURE = 120_000
Results = Mapping[str, Sequence[Study]]
"""by the name of the result folder; the first one has the pictures"""
_SEARCH = "---\nsearch: {exclude: true}\n---"
INSTEAD = {
    "full-modality": "Every evaluation sets plain ridge regressions beside the model; the lattice is made of such "
    "regressions.",
    "missing-patterns": "`mbd evaluate` measures every set of available modalities.",
    "missing-rates": "A missing rate that the data cannot have is left out, and the report says so.",
    "ablation": "Every part can be switched off (`model.joint.*`), and the test over seeds is shown.",
    "corruption": "Every evaluation corrupts rows, of the plain regressions as well.",
    "loss-curves": "Every training writes its losses.",
    "tsne": "A map comes with the silhouette of the space before it.",
    "deletion": "A deletion is attacked beside a model that never saw the modality, and the gate refuses a "
    "certificate where anything can be recovered. Exact deletion needs no noise.",
    "trade-off": "The budget ε is stated only by methods that can prove it; utility and leakage are measured for each.",
    "sensitivity": "Thresholds are quantiles, which mean the same for every model, and their scan is a study.",
    "runtime": "Each deletion times its phases, and the retraining beside it is a real one.",
    "proxy": "`deletion.surgery.importance` chooses the proxy; nothing is edited where the cut leaves nothing salient.",
    "budget": "The ledger of a lineage adds up what every deletion spends, and stops at a limit.",
}


def main(folders: Sequence[Path]) -> None:
    """Write the chapter, the pictures it shows, and the record."""
    known = {folder.name: folder for folder in folders or _with_page(ROOT)}
    results = {name: studies for name, folder in known.items() if (studies := read_studies(folder))}
    if not results:
        raise UsageError("there are no results to write about", key="FOLDER", hint="run `make study` first")
    for _, study in _first(results).values():
        if study.figures:
            write_file(PICTURES / f"study-{study.name}.png", small_picture(study.figures[0]))
    write_file(PAGE, chapter(results))
    write_file(RECORD, record(results, [line for name in results for line in measured(known[name])]))


def _with_page(root: Path) -> list[Path]:
    found = [page.parent.parent for page in root.glob("*/page/index.html")]
    return sorted(found, key=lambda folder: (folder.name != SYNTHETIC, folder.name))


def measured(folder: Path) -> list[str]:
    """Return what was measured in a result folder: the task, rows and modalities of each data set."""
    lines = []
    for data in sorted(found.name for found in (folder / "evaluation" / "sets").glob("*")):
        feature_set = FeatureSet.open(folder / "features" / data)
        manifest = feature_set.manifest
        rows = ", ".join(f"{split} {entry.rows}" for split, entry in manifest.splits.items())
        widths = ", ".join(f"{modality} {width}" for modality, width in feature_set.modalities.items())
        lines.append(f"- {called(folder.name)}, {data}: {manifest.task}; rows: {rows}; dimensions: {widths}")
    return lines


def chapter(results: Results) -> str:
    """Return the handbook's chapter: what the studies ask, and which claims hold."""
    judged = [
        f"on {called(name)}, of {len(_findings(studies))} claims {counted(_findings(studies))}"
        for name, studies in results.items()
    ]
    own = [finding for finding in _findings(next(iter(results.values()))) if OWN_TABLE in finding.claim]
    parts = [
        _SEARCH,
        "# What we found",
        "*Missing-by-Design: Certifiable Modality Deletion for Revocable Multimodal Sentiment Analysis* by Rong Fu and "
        "others ([concepts](concepts.md)) makes claims that can be measured. `make study` builds its model as it is "
        "described and measures them; `python -m studies.findings` writes this page. Numbers and the reason of each "
        f"verdict are in `{RECORD}`.",
        f"In short: {'; '.join(judged)}.",
        "*Not comparable* are scores on other data or features than the paper's. Comparable anywhere is which method "
        "is better on the same rows, by how much, and what is lost. Some claims are decided by the paper's own tables"
        + (f" (of {len(own)}, {counted(own)})." if own else ".")
        + " Where a claim has only a word (modest, stable), we chose the criterion, some after first results had been "
        "seen; seeds are few. In the tables ✓ holds, ✗ does not hold, and ~ cannot be compared.",
    ]
    for name, (folder, study) in _first(results).items():
        parts += [f"## {study.title}", study.question]
        if study.figures:
            parts.append(f"![{study.title}, {called(folder)}](pictures/study-{name}.png)")
        parts += [table] if (table := _claims(results, name)) else []
        parts += [f"**Instead.** {INSTEAD[name]}"] if name in INSTEAD else []
    return "\n\n".join(parts) + "\n"


def record(results: Results, data: Sequence[str]) -> str:
    """Return what the chapter rests on: each study's key table and reasons; `data` says what was measured."""
    parts = ["# The paper's claims: numbers and reasons", "Written by `python -m studies.findings`.", "\n".join(data)]
    for _, study in _first(results).values():
        parts.append(f"## {study.title}")
        for name, studies in results.items():
            parts += _section(name, studies, study.name)
        parts.append(f"Made by {_commands(results, study)}.")
    return "\n\n".join(parts) + "\n"


def _first(results: Results) -> dict[str, tuple[str, Study]]:
    """Return every study once, with the name of the first folder that has it."""
    found: dict[str, tuple[str, Study]] = {}
    for name, studies in results.items():
        for study in studies:
            found.setdefault(study.name, (name, study))
    return found


_MARKS: Mapping[Verdict, str] = {"holds": "✓", "does not hold": "✗", "not comparable": "~"}


def _claims(results: Results, wanted: str) -> str:
    """Return the claims of a study and what each result says of them."""
    verdicts: dict[str, dict[str, str]] = {}
    for name, studies in results.items():
        for finding in (finding for study in studies if study.name == wanted for finding in study.findings):
            verdicts.setdefault(finding.claim, {})[name] = _MARKS[finding.verdict]
    if not verdicts:
        return ""
    lines = [f"| claim | {' | '.join(map(called, results))} |", f"| --- |{' :---: |' * len(results)}"]
    for claim, found in verdicts.items():
        lines.append(f"| {claim.replace('|', '&#124;')} | {' | '.join(found.get(name, '–') for name in results)} |")
    return "\n".join(lines)


def _section(name: str, studies: Sequence[Study], wanted: str) -> list[str]:
    """Return the key table of a study, and what was found."""
    study = next((study for study in studies if study.name == wanted), None)
    if study is None:
        return []
    key = next((shown for shown in study.tables if not shown.printed), None)
    parts = []
    if key:
        parts += [f"**{key.title}** ({called(name)})", key.table, *([key.note] if key.note else [])]
    findings = [
        f"- *{finding.claim}* **{finding.verdict.capitalize()}.** {finding.reason}" for finding in study.findings
    ]
    return [*parts, "\n".join(findings)]


def _commands(results: Results, study: Study) -> str:
    """Return the command of every result that has the study."""
    names = [name for name, studies in results.items() if any(study.name == other.name for other in studies)]
    return " and ".join(f"`{command_about(name, study.command)}`" for name in names)


def _findings(studies: Sequence[Study]) -> list[Finding]:
    return [finding for study in studies for finding in study.findings]


def small_picture(file: Path) -> bytes:
    """Return a picture with few colours, and as small as it must be to stay below the limit."""
    from PIL import Image  # noqa: PLC0415 -- part of an extra

    with Image.open(file) as picture:
        shown = picture.convert("RGB")
    while True:
        png = io.BytesIO()
        shown.quantize(128, dither=Image.Dither.NONE).save(png, "PNG", optimize=True)
        if png.tell() <= LARGEST_PICTURE:
            return png.getvalue()
        shown = shown.resize((shown.width * 4 // 5, shown.height * 4 // 5), Image.Resampling.LANCZOS)


@click.command()
@click.argument("folders", nargs=-1, type=click.Path(exists=True, file_okay=False, path_type=Path))
def command(folders: tuple[Path, ...]) -> None:
    """Write docs/findings.md and studies/findings.md from result folders (default: those of studies/build)."""
    main(folders)


if __name__ == "__main__":
    run_command(command, "studies.findings")
