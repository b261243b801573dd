"""The page to merge from, in a browser: ``resumerge ui FOLDER``.

`workspace` has what the page does in its folder: plans, runs, stops, resumes, comparisons, pushes,
each by a command of the program, which `commands` starts in its own process. `recipe_paths` refuses
paths outside of the folder. `settings` has the options that a page may set. `page` builds the page
from its `parts`; only these import Gradio. `server` serves the page, and `same_origin` refuses
requests that pages of other origins make a browser send. Plans, runs and comparisons are shown as
the fragments of `resumerge.ui.html`. `space` is the same page for people who log in.
"""
