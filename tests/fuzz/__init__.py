"""A fuzzer of files: ``make fuzz``.

A case takes files as a user has them, changes one of them, and then calls commands as a user would.
Each of them has to end with exit code 0, 2 or 75, in ten seconds of CPU time, in 500 MB of memory.
Everything happens in one process; a case follows from the seed, its kind and its number alone.

`kinds/` has a class for each kind of file: what is there before, which file is changed and how,
and what is called. `changes/` changes JSON, bytes and databases. `command_line` calls commands.
"""
