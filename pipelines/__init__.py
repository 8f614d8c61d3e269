"""Kubeflow pipelines: each module has `pipeline(platform)`, and its compiled form lies beside it.

`mbd pipeline compile` writes the YAML files; a test compares them with what the modules give.
"""

from mbd.params.platform import PIPELINES as NAMES

__all__ = ["NAMES"]
