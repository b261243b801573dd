"""``resumerge search``: tries values of a recipe, and finds those that an evaluation rates best.

`request.py` checks the settings of a search, and has the command that repeats it. `space.py` reads
a recipe with ranges in place of some values, and `ranges.py` reads one range. `study.py` asks
Optuna for suggestions, which depend on the history alone. `models.py` merges the model of a trial
and deletes it, `batches.py` merges the models of a batch in one run if possible, and `progress.py`
passes on the messages of these merges. `evaluation.py` runs the user's command on a model, and
`run.py` does batches of trials. `document.py` makes the results' document. `state.py` finds the
searches of a state folder. It reads their tables by `study_tables.py`, without Optuna, whose import
takes a second.

The package does not have the command's name: importing it would replace the function of that name.
"""
