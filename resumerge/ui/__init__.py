"""The user interface: text in a terminal, HTML pages, notebook outputs, progress of a merge.

This package renders the documents of `resumerge.documents`, and makes no decisions about a run. It
may import every package except `resumerge.cli` and `resumerge.api`. Only these two may import it.
"""
