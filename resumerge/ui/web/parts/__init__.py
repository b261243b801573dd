"""The parts of the page: each part has fields and buttons, and the functions behind them.

`recipe` writes, plans and merges recipes, with the fields of `options`. `run` shows, stops, resumes
and pushes a run. `comparison` compares models. `shared` has code that all parts use. Besides these
files, `page.py` imports Gradio.
"""
