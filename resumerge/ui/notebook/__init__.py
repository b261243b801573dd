"""The Python functions in a notebook: merging in the kernel, a live output cell, results.

`results` holds the documents and results that consoles and notebooks display. Imports all other
packages of `resumerge.ui`.
"""
