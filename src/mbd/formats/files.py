"""Names of files that steps write, bundles hold and stores have as objects."""

WEIGHTS = "model.safetensors"
MODEL = "model.json"
INDICES = "indices.safetensors"
METRICS = "metrics.json"
REPORT = "report.md"
CERTIFICATE = "certificate.json"
PROOF = "proof.json"
