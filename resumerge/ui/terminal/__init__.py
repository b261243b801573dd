"""Documents as text and tables of Rich, in one module for each command; `console` prints them.

Sentences that HTML pages share are in `ui/text/`.
"""
