"""The page to merge from, in a browser: ``resumerge ui FOLDER``.

`workspace` has what the page does in its folder: plans, runs, stops, resumes, comparisons, pushes,
each by a command of the program, which `commands` starts in a process of its own. `recipe_paths`
refuses paths outside of the folder; `settings` has the options that a page may set. `page` is what
a browser shows, of its `parts`: these alone import Gradio. `server` serves it, and
`same_origin` refuses what other pages have a browser send. What is shown of
plans, runs and comparisons are the fragments of `resumerge.ui.html`. `space` is the same page for
people who log in.
"""
