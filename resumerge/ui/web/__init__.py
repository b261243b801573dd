"""The page to merge from, in a browser: ``resumerge ui FOLDER``.

`workspace` has what the page does in its folder: plans, runs, stops and resumes, each by what the
commands use; `recipe_paths` refuses recipes that name a path outside it. `background` starts
commands. `page` is what a browser shows, and the only file that imports Gradio; `server` serves it.
What is shown of plans and runs are the fragments of `resumerge.ui.html`.
"""
