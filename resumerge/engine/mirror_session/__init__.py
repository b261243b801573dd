"""The work on a run's mirror before and after an attempt.

`session` holds the lease during one command, `checks` refuses options and paths, `reconcile` makes
ledger and mirror agree, and `abandon` removes a run from its mirror for ``--restart``.
"""
