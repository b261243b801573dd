"""What may stand where in a recipe file, and what each value may be.

`keys` has the sections of the file, `sections` reads them, `problems` words what is wrong. The
other files read one value each.
"""
