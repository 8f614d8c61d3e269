"""The handbook's chapter on the paper's claims: `python -m studies.findings [FOLDER …]` writes docs/findings.md.

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
from studies.outcome import Finding
from studies.plan import SYNTHETIC, called, command_about
from studies.written import Study, counted, read_studies

PAGE = Path("docs/findings.md")
PICTURES = Path("docs/pictures")
LARGEST_PICTURE = 120_000
Results = Mapping[str, Sequence[Study]]
"""by the name of the result folder; the first one has the pictures"""
_HEAD = """---
search: {exclude: true}
---

# What we found

About Rong Fu, Ziming Wang, Chunlei Meng, Jiekai Wu, Kangan Qian, Hao Zhang and Simon Fong, *Missing-by-Design: \
Certifiable Modality Deletion for Revocable Multimodal Sentiment Analysis*."""
Claim = tuple[str, str]
"""the name of its study, and the claim"""
INSTEAD = {
    "full-modality": "Every evaluation sets plain ridge regressions beside the model, on the same rows; the lattice is "
    "a second backbone that is made of such regressions.",
    "missing-patterns": "`mbd evaluate` measures every set of available modalities and averages what it shows.",
    "missing-rates": "A missing rate that the data cannot have is left out, and the report says so.",
    "ablation": "Every part can be switched off by a parameter (`model.joint.*`), and the test over seeds is shown.",
    "corruption": "Corruption is part of every evaluation, and so is what the plain regressions lose by it.",
    "loss-curves": "Every training writes its losses, and every evaluation draws them for all seeds.",
    "tsne": "A map comes with the silhouette of the space before the map, which a map cannot embellish.",
    "deletion": "No deletion is believed by its formula: it is attacked, beside a model that never saw the modality, "
    "and the gate refuses a certificate where anything can be recovered. Exact deletion needs no noise at all.",
    "trade-off": "The budget ε is stated only by methods that can prove it; utility and leakage are measured for each.",
    "sensitivity": "Thresholds are quantiles, which mean the same for every model, and their scan is a study.",
    "runtime": "Phases are timed by each deletion itself, and the retraining beside it is a real one.",
    "proxy": "`deletion.surgery.importance` chooses the proxy; nothing is edited where the cut leaves nothing salient.",
    "budget": "The ledger of a model's lineage adds up what every deletion spends, and stops at a limit.",
}


def main(folders: Sequence[Path]) -> None:
    """Write the chapter, and the pictures it shows."""
    known = {folder.name: folder for folder in folders or _with_page(ROOT)}
    results = {name: studies for name, folder in known.items() if (studies := read_studies(folder))}
    if not results:
        raise UsageError("there are no results to write about", key="FOLDER", hint="run `make study` first")
    for _, study in _first(results).values():
        if study.figures:
            write_file(PICTURES / f"study-{study.name}.png", small_picture(study.figures[0]))
    write_file(PAGE, chapter(results, [line for name in results for line in measured(known[name])]))


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


def chapter(results: Results, data: Sequence[str]) -> str:
    """Return the chapter about one or more results; `data` describes what was measured."""
    parts = [_HEAD, *_introduction(results, "\n".join(data)), "## All claims", _claims(results)]
    for folder, study in _first(results).values():
        parts += [f"## {study.title}", study.question]
        if study.figures:
            parts.append(f"![{study.title}, {called(folder)}](pictures/study-{study.name}.png)")
        for name, studies in results.items():
            parts += _section(name, studies, study.name)
        if study.name in INSTEAD:
            parts.append(f"**What we do instead.** {INSTEAD[study.name]}")
        parts.append(f"Made by {_commands(results, study)}.")
    return "\n\n".join(parts) + "\n"


def _first(results: Results) -> dict[str, tuple[str, Study]]:
    """Return every study once, with the name of the first folder that has it."""
    found: dict[str, tuple[str, Study]] = {}
    for name, studies in results.items():
        for study in studies:
            found.setdefault(study.name, (name, study))
    return found


def _introduction(results: Results, data: str) -> list[str]:
    """Summarise what reproduces and what does not, and where the reasons are."""
    judged = [
        f"on {called(name)}, of {len(_findings(studies))} claims {counted(_findings(studies))}"
        for name, studies in results.items()
    ]
    own = [finding for finding in _findings(next(iter(results.values()))) if OWN_TABLE in finding.claim]
    parts = [
        "This chapter is written by `python -m studies.findings` from the results of `make study`: no number in it was "
        "typed in. The studies build the paper's model as the paper describes it, measure its claims one by one, and "
        "set the printed numbers beside ours.",
        f"In short: {'; '.join(judged)}.",
        "Scores on other data, or on other features, say nothing about the scores in print; such claims are called not "
        "comparable. What can be judged anywhere is what a claim says of methods on the same rows: which is better, by "
        "how much, and what is lost. Some claims need no measurement, because the paper's own tables decide them"
        + (f": of {len(own)}, {counted(own)}." if own else "."),
        "Where a claim has only a word (modest, stable, reliable, near), what it is judged by is ours, and the reason "
        "names it. Some of these criteria were chosen after first results had been seen, and seeds are few.",
        *(["The data:", data] if data else []),
    ]
    titles = {name: study.title for name, (_, study) in _first(results).items()}
    for heading, claims in _by_verdict(results).items():
        if claims:
            by_study: dict[str, list[str]] = {}
            for study, claim in claims:
                by_study.setdefault(study, []).append(claim)
            lines = [f"- [{titles[study]}](#{_anchor(titles[study])}): {' '.join(c)}" for study, c in by_study.items()]
            parts += [f"**{heading}**", "\n".join(lines)]
    return [*parts, "The sections below give the reasons, the numbers, and what this project does instead."]


def _by_verdict(results: Results) -> dict[str, list[Claim]]:
    """Sort claims by what all results that could judge them say."""
    found: dict[str, list[Claim]] = {"What reproduces": [], "What does not": [], "What depends on the data": []}
    headings = {"holds": "What reproduces", "does not hold": "What does not"}
    for claim, verdicts in _verdicts(results).items():
        known = {verdict for verdict in verdicts.values() if verdict != "not comparable"}
        if known:
            found[headings[known.pop()] if len(known) == 1 else "What depends on the data"].append(claim)
    return found


def _verdicts(results: Results) -> dict[Claim, dict[str, str]]:
    """Return for each claim what each result says, claims of one study together."""
    found: dict[Claim, dict[str, str]] = {}
    for wanted in _first(results):
        for name, studies in results.items():
            for study in studies:
                if study.name == wanted:
                    for finding in study.findings:
                        found.setdefault((wanted, finding.claim), {})[name] = finding.verdict
    return found


def _claims(results: Results) -> str:
    titles = {name: study.title for name, (_, study) in _first(results).items()}
    lines = [
        f"| what the paper says | {' | '.join(map(called, results))} | study |",
        f"| --- |{' --- |' * len(results)} --- |",
    ]
    for (study, claim), verdicts in _verdicts(results).items():
        cells = [verdicts.get(name, "–") for name in results]
        link = f"[{titles[study]}](#{_anchor(titles[study])})"
        lines.append(f"| {claim.replace('|', '&#124;')} | {' | '.join(cells)} | {link} |")
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


def _anchor(title: str) -> str:
    from markdown.extensions.toc import slugify  # type: ignore[import-untyped] # noqa: PLC0415 -- part of an extra

    return str(slugify(title, "-"))


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
    """Write docs/findings.md from result folders (default: every folder below studies/build that has a page)."""
    main(folders)


if __name__ == "__main__":
    run_command(command, "studies.findings")
