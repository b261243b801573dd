"""Flat checkpoints: models without a config.json, whose tensors are matched by name alone.

`matching` makes each output tensor from the tensors of its name. `participation` checks that each
model has a tensor that is merged with another model's. `low_rank` notes that the matrices of LoRA
adapters are merged each by itself.
"""
