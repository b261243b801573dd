"""Results of stages: results that are kept as models, and tensors that are spilled."""
