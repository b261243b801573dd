"""Flat checkpoints: models without a config.json, whose tensors are matched by name alone."""
