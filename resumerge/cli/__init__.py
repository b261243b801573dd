"""The command line: one file for each command.

`main` has the entry point and the list of commands. Each command is in a module with its name. The
module defines the click command `command`, with the decorators of `parsing.arguments`. A command
parses arguments, calls functions of other packages, and prints with `ui`; it computes nothing
itself. `parsing/` has the decorators and classes of all commands, and `merging/` the code that the
merging commands share. Only `__main__` imports this package.

To add a command, write its module and add it to `main.COMMANDS`.
"""
