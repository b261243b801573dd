"""The command line: one file a command.

`main` has the entry point and the list of commands. Each command is `command` in the module of its
name, a click command made of the decorators in `parsing.arguments`. A command parses, calls a
function of the engine, and prints with `ui`; it computes nothing. Nothing imports this package but
`__main__`.

To add a command, write its module and add it to `main.COMMANDS`.
"""
