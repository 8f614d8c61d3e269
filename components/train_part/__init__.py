"""The component `train_part`."""
