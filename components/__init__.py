"""Kubeflow components: see :mod:`components.steps`."""
