"""Documents as text and tables of Rich, in one module for each command; `console` prints them.

`terminal` prints results on stdout and messages on stderr, `prose` folds text to the width of the
console, and `streams` drops output that cannot be written. `plot` draws the history of a run with
characters. `watch` redraws a run until it ends, and `keys` reads the key that stops it. Sentences
that HTML pages share are in `ui/text/`.
"""
