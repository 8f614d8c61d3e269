"""A software bill of materials: every distribution installed beside this program, in CycloneDX 1.5 JSON.

Sorted and without a time or a serial number, so that the same installation gives the same bytes.
"""

import re
from importlib.metadata import Distribution, distributions
from typing import Any

from mbd import __version__
from mbd.doctor.installation import DISTRIBUTION


def bill_of_materials() -> dict[str, Any]:
    """Return the bill of this installation."""
    found = {_normalised(entry): entry for entry in distributions()}
    parts = [_component(name, entry) for name, entry in sorted(found.items()) if name != DISTRIBUTION]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": DISTRIBUTION, "version": __version__}},
        "components": parts,
    }


def _component(name: str, entry: Distribution) -> dict[str, Any]:
    stated = entry.metadata.json
    licence = str(stated.get("license_expression") or stated.get("license") or "")
    # Some packages put the whole text of their licence where its name belongs.
    named = licence if "\n" not in licence and len(licence) < 80 else ""
    return {
        "type": "library",
        "name": name,
        "version": entry.version,
        "purl": f"pkg:pypi/{name}@{entry.version}",
        **({"licenses": [{"license": {"name": named}}]} if named else {}),
    }


def _normalised(entry: Distribution) -> str:
    return re.sub(r"[-_.]+", "-", entry.metadata["Name"]).lower()
