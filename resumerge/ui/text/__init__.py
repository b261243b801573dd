"""Sentences, lines and commands to type, for both the terminal and HTML.

`narrative` makes sentences about the events of a run, `format` lines for a status, `numbers` lines
about the changes of a merge, and `accounts` lines about used and unused tensors. `host` makes lines
about the machine and the settings that a run derives from it, and `layer_map` bars for the origins
of layers. `comparison`, `explanation` and `search` have the texts of these documents, and `pushed`
the result of a push. `commands` has the commands that messages advise users to type.
"""
