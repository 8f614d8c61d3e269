"""Settings of a small lattice with few attacks, so that a request is carried out in seconds."""

SETTINGS = (
    "features.source.synthetic.dims={text: 12, audio: 6, visual: 8}",
    "features.source.synthetic.rows={train: 400, valid: 100, test: 200, calibration: 64}",
    "model.backbone=lattice",
    "model.lattice.components=4",
    "model.lattice.landmarks=8",
    "deletion.method=exact",
    "evaluation.figures=false",
    "evaluation.missing_rates=[0.3]",
    "attacks.figures=false",
    "attacks.resamples=200",
)
