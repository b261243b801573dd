"""What a run does with its mirror around an attempt.

`mirror_session` holds the lease during one command, `mirror_checks` refuses options and paths,
`reconcile` brings ledger and mirror into agreement, `abandon` removes a run for ``--restart``.

May import: `mirror`, `ledger`, `planning`, and `engine/execute` and `engine/resources`; never
`engine/lifecycle`.
"""
