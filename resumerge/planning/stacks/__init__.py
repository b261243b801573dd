"""Checks of outputs whose layers are chosen by slices.

Every layer must be of a kind that the reference has (`kinds`), config.json must be able to state
the kind of each layer (`config_lists`), and no tensor outside the layers may depend on the number
of layers (`outside`). `mixed` notes merged layers that differ in a setting alone. Finally, the
planned tensors are compared with those that config.json implies (`implied`).
"""
