"""Hooks of MkDocs.

- The word after `sh` on a fence (services, unexecuted) is for the tests, not for readers.
- Browsers break lines behind hyphens, and options of commands stay whole.
- Notebooks become pages with their outputs.
"""

import base64
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_FENCE = re.compile(r"^(\s*```sh) \w+$", re.MULTILINE)
_CODE = re.compile(r"<code>.*?</code>", re.DOTALL)
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return the page with plain `sh` fences."""
    return _FENCE.sub(r"\1", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with a mark around each option in code, for stylesheets/pages.css."""
    return _CODE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401 -- MkDocs' own type is not exported
    """Add every notebook as a page, and its pictures as files beside it."""
    for notebook in sorted(Path(__file__).parent.glob("*.ipynb")):
        page: list[str] = []
        for cell in json.loads(notebook.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            page.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
            for output in cell.get("outputs", ()):
                if picture := output.get("data", {}).get("image/png"):
                    name = f"{notebook.stem}-{len(page)}.png"
                    files.append(File.generated(config, name, content=base64.b64decode(picture)))
                    page.append(f"![output of the code above]({name})")
                elif shown := output.get("data", {}).get("text/html"):
                    page.append("".join(shown))
                else:
                    page.append(f"```text\n{''.join(output.get('text', ()))}\n```")
        files.append(File.generated(config, f"{notebook.stem}.md", content="\n\n".join(page)))
    return files
