"""The page to merge from, in a browser: ``resumerge ui FOLDER``.

`workspace` implements the actions in the page's folder: plan, merge, stop, resume, compare, push.
Each action is a command of the program, which `commands` starts in a process of its own.
`recipe_paths` refuses paths outside of the folder. `settings` lists the options that a page may
set. `page` builds the page from its `parts`; only these modules import Gradio. `server` serves the
page. `same_origin` refuses requests that a page of another origin makes a browser send. Plans, runs
and comparisons are shown as fragments of `resumerge.ui.html`. `space` serves the same page to
people who log in.
"""
