"""``resumerge search``: values of a recipe that an evaluation likes best, found by trying them.

`space.py` reads a recipe some of whose values are ranges, `ranges.py` one such range;
`study.py` has Optuna suggest values, so that what is suggested depends on the history alone;
`evaluation.py` runs the user's command on a model, `models.py` merges the model of a trial and
deletes it, `run.py` does one trial after the other, `document.py` says what came out, and
`state.py` finds the searches of a state folder, and reads their tables by `study_tables.py`,
without Optuna, whose import takes a second.
"""
