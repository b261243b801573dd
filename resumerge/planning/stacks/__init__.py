"""Checks of outputs whose layers slices choose.

Every layer must be of a kind that the reference has (`kinds`), config.json must be able to state
the kind of each layer (`config_lists`), and no tensor outside the layers may depend on their number
(`outside`). At the end the planned tensors are compared with those that config.json implies
(`implied`).
"""
