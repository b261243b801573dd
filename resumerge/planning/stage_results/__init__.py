"""Results of stages: those that are kept as models, and tensors of them that are spilled."""
