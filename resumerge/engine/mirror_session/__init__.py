"""What a run does with its mirror around an attempt.

`session` holds the lease during one command, `checks` refuses options and paths, `reconcile` brings
ledger and mirror into agreement, `abandon` removes a run for ``--restart``.
"""
