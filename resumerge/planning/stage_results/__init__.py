"""The results of stages: those kept as models in the output, and the tensors that are spilled."""
