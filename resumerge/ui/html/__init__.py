"""Documents as HTML: a page for a run, and fragments for the output of notebook cells.

`page` shows a run with its `charts` and its `strips` of layers, or a table of all runs.
`comparison`, `explanation`, `plan` and `search` show the documents of their commands. `page_file`
writes a page to a file. `environment` fills in the templates, which escape every value. A page
needs no other file and runs no script.
"""
