"""Documents as HTML: a page for a run, and fragments for the output of notebook cells.

Templates escape every value. A page needs no other file and runs no script.
"""
