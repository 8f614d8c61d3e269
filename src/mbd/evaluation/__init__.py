"""Evaluation of predictions: metrics, regimes of missing modalities, baselines."""
