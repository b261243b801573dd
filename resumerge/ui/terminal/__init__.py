"""Documents as text and tables of Rich, one module a command; `console` prints them safely.

Imports nothing else of `resumerge.ui`.
"""
