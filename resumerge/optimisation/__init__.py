"""``resumerge search``: tries values of a recipe, and finds those that an evaluation rates best.

`space.py` reads a recipe some of whose values are ranges, and `ranges.py` one such range.
`study.py` has Optuna suggest values, which depend on the history alone. `models.py` merges the
model of a trial and deletes it, `evaluation.py` runs the user's command on a model, and `run.py`
does batches of trials. `document.py` makes the results' document. `state.py` finds the searches of
a state folder, and reads their tables by `study_tables.py`, without Optuna, whose import takes a
second.
"""
