"""What people see: text in a terminal, HTML pages, notebook outputs, progress of a merge.

This package renders what `resumerge.documents` says. It decides nothing about a run. It may import
every package but `resumerge.cli` and `resumerge.api`; nothing but these two may import it.
"""
