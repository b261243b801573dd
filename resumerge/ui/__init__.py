"""The user interface: text in a terminal, HTML pages, notebook outputs, progress of a merge.

This package renders the documents of `resumerge.documents`. It decides nothing about a run. It may
import every package but `resumerge.cli` and `resumerge.api`; nothing but these two may import it.
"""
