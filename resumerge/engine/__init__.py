"""A run, from the command to the finished model.

`lifecycle` has the stages of `run` and `resume` in order: start at `lifecycle/pipeline.py`. They
use `checks` (what refuses a run), `recovery` (after a crash; verify), `replication` (a run and its
mirror), `execute` (the main loop) and `resources` (memory, locks, signals). `reports` are the
documents of `plan` and `cache check`. `context.RunContext` is what every stage works with, and
`reporter.Reporter` is told of progress.

Nothing here prints or draws, and nothing here contains SQL: `ui` and `ledger` do. May import every
room below it; `supervisor`, `report`, `ui`, `cli` and `api` import it.
"""
