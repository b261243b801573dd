"""Checks of outputs whose layers slices choose.

Every layer must be of a kind that the reference has (`kinds`), config.json must be able to state
what each layer is (`config_lists`), and nothing outside the layers may depend on their number
(`outside`). At the end the planned tensors are compared with what config.json implies (`implied`).
"""
