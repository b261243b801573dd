"""Documents: facts on runs, plans, caches and methods, as data for ``--json`` and for displays.

The functions read facts from ledgers, mirrors, plans and declarations, and return dictionaries and
dataclasses. They do not print or draw; `resumerge.ui` renders documents.

Start at `status` (one run or all runs), `history` (samples over time) and `plan_report` (a merge
that has not begun). `run` describes a run for `status`, with `cluster` (the work of each machine)
and `accounts/`; `timings` adds up its seconds by layer and by kind. `panels` has the plots of a
history, whose columns `timeline` divides among attempts. `choices` explains the settings that a run
derives from its machine.

`explanation` has the parameters of every tensor, and `methods` the merge methods. `new_recipe`
makes the recipes of ``resumerge init``, and `recipe_file` writes recipes from Python or from a
command to temporary files. Two modules also do the work of their commands: `try_model` runs a
model, and `cache_check` downloads what it repairs.
"""
