"""Sentences, lines and commands to type, for the terminal and for HTML alike.

`narrative` makes a sentence of each event of a run, `format` lines of a status, `host` lines on the
machine and on the choices that follow from it, `layer_map` bars of the layers' origins, and
`commands` the commands that messages tell users to type.
"""
