"""The engine: carries out a run, from the command to the finished model.

`lifecycle` has the phases of `run` and `resume` in order: start at `lifecycle/phases.py`. The
phases use `opening` (sources and plans), `checks` (conditions that refuse a run), `mirror_session`
(a run's use of its mirror), `recovery` (after a crash; verify), `execute` (the main loop),
`cluster` (the same computation on several machines) and `linked_stages` (links to kept stages in a
folder of the user's). These folders use `evaluation` (computes a block), `shards` (the output's
files), `changes` (how a merge changed the numbers), `resources` (memory, locks, signals) and
`timer` (the seconds of a merge). Every phase receives a `context.RunContext`, and reports its
progress to a `reporter.Reporter`. `push` uploads a finished model, and `reproduction` compares a
published one with a model that is made again.

The engine neither prints nor draws (`ui` does), and contains no SQL (`ledger` does). It may import
every room below it; `supervisor`, `documents`, `ui`, `cli` and `api` import it.
"""
