"""All studies on one page: `python -m studies.page` writes index.md and index.html, which needs no other file."""

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from mbd.files import STEP_FILE, to_json, write_file
from mbd.outputs import whole_folder
from studies.layout import Layout
from studies.outcome import Finding
from studies.plan import SYNTHETIC, StudyPlan, called, command_about, read_plan
from studies.written import Study, counted, read_studies

_STYLE = """
:root { --ink: #1d2430; --soft: #5b6675; --paper: #ffffff; --line: #dfe4ea; --tint: #f5f7f9; --printed: #f8f1f6;
  --link: #0b5f99; --holds: #0a6b4f; --fails: #b03a06; --open: #5b6675; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ee; --soft: #9aa6b5; --paper: #14181f; --line: #2d3541;
  --tint: #1b212a; --printed: #29202a; --link: #79bdec; --holds: #5cc9a3; --fails: #f2925f; --open: #9aa6b5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 92rem; padding: 1.5rem clamp(1rem, 4vw, 3rem) 4rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 1rem 0 .5rem; }
h2 { font-size: 1.35rem; margin: 3.2rem 0 .4rem; padding-top: 1rem; border-top: 1px solid var(--line); }
h3 { font-size: .95rem; margin: 0 0 .4rem; }
p { max-width: 62rem; margin: .5rem 0; }
a { color: var(--link); }
code { background: var(--tint); padding: .1em .35em; border-radius: 4px; font-size: .9em; }
nav ol { columns: 18rem; padding-left: 1.4rem; margin: .8rem 0; }
.soft, .note, small { color: var(--soft); }
.note { font-size: .85rem; margin: .4rem 0 0; contain: inline-size; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .55rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 2px solid var(--line); white-space: normal; vertical-align: bottom; }
.tables { display: flex; flex-wrap: wrap; gap: 1.2rem; align-items: flex-start; margin: 1rem 0; }
.table { border: 1px solid var(--line); border-radius: 8px; padding: .8rem 1rem; max-width: 100%; }
.printed { background: var(--printed); }
.mark { font-weight: 400; color: var(--soft); }
.figures { display: flex; flex-wrap: wrap; gap: 1.2rem; margin: 1rem 0; align-items: flex-start; }
.figures img { max-width: min(100%, 46rem); height: auto; background: #fff; border: 1px solid var(--line);
  border-radius: 8px; padding: .5rem; }
.claims { width: 100%; font-size: .92rem; }
.claims th, .claims td { text-align: left; white-space: normal; vertical-align: top; padding: .55rem .65rem; }
.claims td:nth-child(2) { min-width: 14rem; width: 32%; }
.overview td:nth-child(2) { width: auto; }
.claims td:first-child { white-space: nowrap; font-weight: 600; width: 10rem; }
.holds { color: var(--holds); } .fails { color: var(--fails); } .open { color: var(--open); }
.claims .place { white-space: nowrap; }
@media (max-width: 46rem) { .claims, .claims tbody, .claims tr, .claims td { display: block; width: 100% !important; }
  .claims thead { display: none; } .claims td { border: 0; padding: .1rem 0; }
  .claims tr { border-bottom: 1px solid var(--line); padding: .6rem 0; } }
@media print { .table, .figures img { break-inside: avoid; } }
"""
_CLASSES = {"holds": ("holds", "✓"), "does not hold": ("fails", "✗"), "not comparable": ("open", "○")}


def write_page(layout: Layout) -> None:
    """Write the page of everything below `layout.root`."""
    studies = read_studies(layout.root)
    with whole_folder(layout.root / "page", "page") as folder:
        write_file(folder / STEP_FILE, to_json({"step": "page"}))
        write_file(folder / "index.md", markdown_page(layout.plan, studies))
        write_file(folder / "index.html", html_page(layout.plan, studies))


def heading(plan: StudyPlan) -> str:
    """Return the title of the page."""
    return f"What holds of the paper’s claims: {called(plan.name)}"


def introduction(plan: StudyPlan, studies: list[Study]) -> str:
    """Return what was measured and how to read it."""
    seeds = f"{len(plan.seeds)} seed{'s' * (len(plan.seeds) > 1)}"
    about = (
        f"Synthetic data in the shape of {', '.join(plan.compared)}"
        if plan.name == SYNTHETIC
        else f"The data of {called(plan.name)}"
    )
    findings = [finding for study in studies for finding in study.findings]
    return (
        f"{about}, {seeds}; where a modality is deleted it is {plan.revoked}. Of {len(findings)} claims, "
        f"{counted(findings)}. ± is the deviation over seeds. Tables marked “printed in the paper” are the paper’s own "
        "numbers, for orientation: scores on other data say nothing about them, but order, differences and losses of "
        "methods on the same rows can be judged."
    )


def markdown_page(plan: StudyPlan, studies: list[Study]) -> str:
    """Return the page as Markdown."""
    parts = [f"# {heading(plan)}", introduction(plan, studies)]
    parts.append("\n".join(f"- [{study.title}](#{study.name})" for study in studies))
    lines = ["| verdict | what the paper says | study |", "| --- | --- | --- |"]
    lines += [
        f"| {finding.verdict} | {_cell(finding.claim)} | [{study.title}](#{study.name}) |"
        for study in studies
        for finding in study.findings
    ]
    parts += ["## All claims", "\n".join(lines)]
    for study in studies:
        parts += [f'<a id="{study.name}"></a>', f"## {study.title}", study.question]
        parts += [f"- *{f.claim}* **{f.verdict}**: {f.reason}" for f in study.findings]
        parts += [f"![{study.title}](../studies/{study.name}/{figure.name})" for figure in study.figures]
        for shown in study.tables:
            mark = " (printed in the paper)" if shown.printed else ""
            parts += [f"**{shown.title}**{mark}", shown.table, *([shown.note] if shown.note else [])]
        parts.append(f"Made by `{command_about(plan.name, study.command)}`.")
    return "\n\n".join(parts) + "\n"


def html_page(plan: StudyPlan, studies: list[Study]) -> str:
    """Return the page as one HTML file."""
    contents = "".join(f'<li><a href="#{study.name}">{html.escape(study.title)}</a></li>' for study in studies)
    body = [
        f"<h1>{html.escape(heading(plan))}</h1>",
        f"<p>{html.escape(introduction(plan, studies))}</p>",
        f'<nav aria-label="Contents"><ol><li><a href="#claims">All claims</a></li>{contents}</ol></nav>',
        '<h2 id="claims">All claims</h2>',
        _overview(studies),
        *(_section(plan, study) for study in studies),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{html.escape(heading(plan))}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _overview(studies: list[Study]) -> str:
    """Return every claim with its verdict."""
    rows = [
        f"<tr>{_verdict(finding)}<td>{html.escape(finding.claim)}</td>"
        f'<td class="place"><a href="#{study.name}">{html.escape(study.title)}</a></td></tr>'
        for study in studies
        for finding in study.findings
    ]
    return _claims(("verdict", "what the paper says", "study"), rows, "claims overview")


def _reasons(study: Study) -> str:
    """Return the claims of one study with what was found."""
    rows = [
        f"<tr>{_verdict(finding)}<td>{html.escape(finding.claim)}</td><td>{html.escape(finding.reason)}</td></tr>"
        for finding in study.findings
    ]
    return _claims(("verdict", "what the paper says", "what we find"), rows)


def _claims(header: Sequence[str], rows: Sequence[str], kind: str = "claims") -> str:
    head = "".join(f"<th>{name}</th>" for name in header)
    return f'<table class="{kind}"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _verdict(finding: Finding) -> str:
    name, sign = _CLASSES[finding.verdict]
    return f'<td class="{name}">{sign} {finding.verdict}</td>'


def _section(plan: StudyPlan, study: Study) -> str:
    figures = "".join(
        f'<img alt="{html.escape(study.title)}: {figure.stem.replace("-", " ")}" src="{_inline(figure)}">'
        for figure in study.figures
    )
    tables = []
    for shown in study.tables:
        mark = ' <span class="mark">printed in the paper</span>' if shown.printed else ""
        note = f'<p class="note">{html.escape(shown.note)}</p>' if shown.note else ""
        tables.append(
            f'<div class="table{" printed" if shown.printed else ""}"><h3>{html.escape(shown.title)}{mark}</h3>'
            f'<div class="scroll">{_html_table(shown.table)}</div>{note}</div>'
        )
    return (
        f'<h2 id="{study.name}">{html.escape(study.title)}</h2>\n<p>{html.escape(study.question)}</p>\n'
        + (_reasons(study) if study.findings else "")
        + (f'\n<div class="figures">{figures}</div>\n' if figures else "")
        + f'<div class="tables">{"".join(tables)}</div>\n'
        + f'<p class="soft">Made by <code>{command_about(plan.name, study.command)}</code>.</p>'
    )


def _html_table(text: str) -> str:
    """Return a Markdown table as HTML."""
    from markdown import markdown  # type: ignore[import-untyped] # noqa: PLC0415 -- part of an extra

    return str(markdown(text, extensions=["tables"]))


def _inline(figure: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(figure.read_bytes()).decode()}"


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    write_page(Layout.of(read_plan()))
