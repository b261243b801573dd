"""Documents as text and tables of Rich, one module a command; `console` prints them safely.

Sentences that pages have too are in `ui/text/`.
"""
