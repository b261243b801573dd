"""A run, from the command to the finished model.

`lifecycle` has the phases of `run` and `resume` in order: start at `lifecycle/phases.py`. They
use `opening` (sources and plans), `checks` (what refuses a run), `mirror_session` (a run and its
mirror), `recovery` (after a crash; verify), `execute` (the main loop) and `cluster` (the same on
more machines). Below these are `evaluation` (computes a block), `shards` (the output's files),
`changes` (what a merge did to the numbers) and `resources` (memory, locks, signals).
Every phase is given a `context.RunContext`, and reports its progress to a `reporter.Reporter`.

Nothing here prints or draws, and nothing here contains SQL: `ui` and `ledger` do. May import every
room below it; `supervisor`, `documents`, `ui`, `cli` and `api` import it.
"""
