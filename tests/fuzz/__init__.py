"""A fuzzer of files: ``make fuzz``.

A case makes files as a user has them, changes one of them, and then calls commands as a user would.
A command has to end with exit code 0, 2 or 75, in ten seconds of CPU time and 500 MB of memory.
All cases run in one process. The seed, a kind and a number alone determine a case.

`kinds/` has a class for each kind of file: the files before the change, the change, and the
commands. `changes/` changes JSON, bytes and databases. `command_line` calls commands.
"""
