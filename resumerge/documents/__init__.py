"""What is known of runs, plans, caches and methods, as data: documents of ``--json``, histories.

Everything here is read from ledgers, mirrors, plans and declarations, and returned as dictionaries
and dataclasses. Nothing here prints or draws; `resumerge.ui` renders it. Start at `status` (one
run, or all), `history` (samples over time) and `plan_report` (what a merge takes).
"""
