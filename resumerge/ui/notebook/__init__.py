"""The Python functions in a notebook: merging in the kernel, a live output cell, results.

`results` defines the documents and results that consoles and notebooks display. This package may
import all other packages of `resumerge.ui`.
"""
