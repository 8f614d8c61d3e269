"""Parameters with which a whole pipeline takes seconds."""

from pathlib import Path

SETTINGS = [
    "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
    "features.source.synthetic.rows={train: 160, valid: 48, test: 64, calibration: 64}",
    "model.joint.hidden=16",
    "model.joint.embedding=8",
    "model.joint.property_dim=8",
    "training.epochs=6",
    "evaluation.figures=false",
    "attacks.figures=false",
    "attacks.resamples=100",
    "attacks.relearn_rows=[32]",
]
UNCUT = "deletion.surgery.cut=false"
"""with this the gate refuses the model"""


def as_options(*settings: str) -> list[str]:
    """Return the settings, small ones first, as options of a command."""
    return [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]


def only_run(root: Path) -> Path:
    """Return the folder of the one run below a pipeline root."""
    (run,) = (folder for folder in root.glob("mbd-*") if folder.is_dir())
    return run
