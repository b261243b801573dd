"""The parts of the page: each has its fields and buttons, and their functions.

`recipe` writes, plans and merges recipes, with the `options`; `run` shows a run, stops, resumes and
pushes it; `comparison` compares models. `shared` has what all of them use. Only these files, and
`page.py` above, import Gradio.
"""
