"""Documents: facts on runs, plans, caches and methods, as data for ``--json`` and for displays.

The facts are read from ledgers, mirrors, plans and declarations, and returned as dictionaries and
dataclasses. Nothing here prints or draws; `resumerge.ui` renders documents. Start at `status` (one
run, or all), `history` (samples over time) and `plan_report` (a merge before it is done).
"""
