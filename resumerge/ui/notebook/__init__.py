"""The Python functions in a notebook: merging in the kernel, a live output cell, results.

`in_process` merges in the caller's process. `cell` shows the run in the output of a cell, and
`spoken` words messages with arguments in place of options. `results` defines the documents and
results that consoles and notebooks display. This package may import all other packages of
`resumerge.ui`.
"""
