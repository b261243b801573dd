"""Sentences, lines and commands to type, for both the terminal and HTML.

`narrative` makes sentences about the events of a run, `format` lines for a status, `host` lines
about the machine and the settings that a run derives from it, `layer_map` bars for the origins of
layers, and `commands` the commands that messages advise users to type.
"""
