"""The user interface: text in a terminal, HTML pages, notebook outputs, progress of a merge.

This package renders the documents of `resumerge.documents`, and makes no decisions about a run.
`terminal/` renders them as text, `html/` as pages, both with the sentences of `text/`. `progress/`
shows a merge while it runs. `notebook/` displays merges and results in a notebook. `web/` is the
page to merge from, in a browser. `ui` may import every package except `resumerge.cli` and
`resumerge.api`. Only these two may import it.
"""
