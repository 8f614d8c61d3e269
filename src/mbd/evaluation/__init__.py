"""What a prediction is worth: metrics, regimes, baselines."""
