"""Kubeflow components, a folder for each step. They hold no logic: each calls its task in :mod:`mbd.kubeflow`."""
