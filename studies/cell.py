"""A cell of the studies: one command of `mbd`, made from names of `params.yaml` and printed before it runs.

    python -m studies.cell features SET            SET-bB: a set with B calibration rows
    python -m studies.cell train SET MODEL SEED
    python -m studies.cell reference BACKBONE SEED
    python -m studies.cell delete DELETION SEED
    python -m studies.cell attack DELETION SEED
    python -m studies.cell evaluate GROUP

A model that the gate refuses is a result like any other, so an attack that ends with exit code 3 is a finished cell.
Noise comes from a public seed: two runs of a study must give the same numbers, and no certificate comes of it.
"""

import shlex
import sys
from collections.abc import Callable, Mapping
from typing import Any

from mbd.cli import main as mbd_main
from mbd.errors import ExitCode
from mbd.features.sources.synthetic import PRESETS
from studies.layout import Layout
from studies.plan import read_plan

_PLAIN = ("attacks.figures=false",)
_QUICK = ("attacks.variants=[]", "attacks.relearn_rows=[8]")


def features(layout: Layout, data: str) -> list[str]:
    """Bring a data set into one form."""
    name, size = with_calibration(layout, data)
    options = layout.plan.options(name)
    options += ["--set", _calibration(layout.plan.settings[name], int(size))] if size else []
    return ["features", *options, "--out", str(layout.features(data))]


def _calibration(settings: Mapping[str, Any], size: int) -> str:
    """Return the setting that asks for `size` calibration rows and leaves the other splits as they are."""
    if settings.get("features.source.kind", "synthetic") != "synthetic":
        return f"features.calibration.size={size}"
    preset = PRESETS[settings.get("features.source.preset", "mosi")]
    rows = settings.get("features.source.synthetic.rows") or preset.rows
    return f"features.source.synthetic.rows={ {**rows, 'calibration': size} }"


def train(layout: Layout, data: str, model: str, seed: str) -> list[str]:
    """Train a backbone, or a variant of the joint one."""
    out = layout.models(data, model) / f"seed-{seed}"
    options = [*layout.plan.options(model), "--set", f"training.seed={seed}"]
    return ["train", "--features", str(layout.features(data)), *options, "--out", str(out)]


def reference(layout: Layout, backbone: str, seed: str) -> list[str]:
    """Train a backbone without the revoked modality."""
    plan, out = layout.plan, layout.references(backbone) / f"seed-{seed}"
    options = [*plan.options(backbone), "--set", f"training.seed={seed}", "--without", plan.revoked]
    return ["train", "--features", str(layout.features(plan.main)), *options, "--out", str(out)]


def delete(layout: Layout, deletion: str, seed: str) -> list[str]:
    """Delete the revoked modality from the model of a seed."""
    plan, backbone = layout.plan, backbone_of(deletion)
    setting, size = with_calibration(layout, deletion)
    data = f"{plan.main}-b{size}" if size else plan.main
    options = [*plan.options(setting), "--set", f"training.seed={seed}"]
    options += ["--set", f"deletion.noise_seed={seed}"] if _draws_noise(plan.settings[setting]) else []
    model = layout.models(plan.main, backbone) / f"seed-{seed}"
    never = layout.references(backbone) / f"seed-{seed}"
    return [
        *("delete", "--features", str(layout.features(data)), "--model", str(model), "--modality", plan.revoked),
        *("--reference", str(never), *options, "--out", str(layout.deleted(deletion) / f"seed-{seed}")),
    ]


def _draws_noise(settings: Mapping[str, Any]) -> bool:
    return settings["deletion.method"] == "certified" or settings.get("deletion.surgery.edit") == "noise"


def attack(layout: Layout, deletion: str, seed: str) -> list[str]:
    """Attack a deleted model; scans with the plain attacks only."""
    plan, backbone = layout.plan, backbone_of(deletion)
    folders = {
        "--before": layout.models(plan.main, backbone),
        "--after": layout.deleted(deletion),
        "--reference": layout.references(backbone),
    }
    quick = _PLAIN if deletion in plan.deletions else (*_PLAIN, *_QUICK)
    return [
        *("attack", "--features", str(layout.features(plan.main)), "--modality", plan.revoked),
        *(part for setting in quick for part in ("--set", setting)),
        *(part for option, folder in folders.items() for part in (option, str(folder / f"seed-{seed}"))),
        *("--out", str(layout.leakage(deletion) / f"seed-{seed}")),
    ]


def evaluate(layout: Layout, group: str) -> list[str]:
    """Evaluate all models of a group side by side."""
    plan = layout.plan
    data = group if group in plan.compared else plan.main
    folders = {
        "ablation": [layout.models(data, model) for model in ("joint", *plan.variants)],
        "deleted": [
            *(layout.references(backbone) for backbone in plan.backbones),
            *(layout.deleted(deletion) for deletion in plan.deletions),
        ],
        "scans": [layout.deleted(scan) for scan in scans(layout)],
    }.get(group, [layout.models(data, backbone) for backbone in plan.backbones])
    models = [part for folder in folders for part in ("--model", str(folder))]
    given = ["--features", str(layout.features(data)), *models, "--set", "evaluation.figures=false"]
    return ["evaluate", *given, "--out", str(layout.evaluation(group))]


def scans(layout: Layout) -> list[str]:
    """Return the names of all deletions of the scan: settings, and sizes of the calibration batch."""
    return [*layout.plan.scans, *(f"uncut-b{size}" for size in layout.plan.calibrations)]


def with_calibration(layout: Layout, name: str) -> tuple[str, str]:
    """Return a name without its calibration size, and the size ("" if it has none)."""
    plain, _, size = name.rpartition("-b")
    return (plain, size) if plain and size in map(str, layout.plan.calibrations) else (name, "")


def backbone_of(deletion: str) -> str:
    """Return the backbone that a deletion is for."""
    return "lattice" if deletion == "exact" else "joint"


CELLS: dict[str, Callable[..., list[str]]] = {
    cell.__name__: cell for cell in (features, train, reference, delete, attack, evaluate)
}


def main(kind: str, *names: str) -> int:
    """Run a cell; return the exit code."""
    arguments = CELLS[kind](Layout.of(read_plan()), *names)
    print("$", shlex.join(["mbd", *arguments]), flush=True)  # noqa: T201 -- what a cell is
    try:
        mbd_main(arguments)  # in this process, so that nothing is imported twice
    except SystemExit as end:
        return 0 if kind == "attack" and end.code == ExitCode.REFUSED else int(end.code or 0)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
