"""Sentences, lines and commands to type, for the terminal and for HTML alike.

`narrative` makes a sentence of each event of a run, `format` lines of a status, `host` what is said
of the machine and of the choices that a run made because of it, `layer_map` bars of the layers'
origins, and `commands` the commands that messages tell users to type.
"""
