"""The sections and keys of a recipe file, and the readers of their values.

`keys` declares every section with its keys, `sections` reads them and collects all errors,
`exclusions` checks which keys exclude or need each other. The other files read one value each and
raise `InvalidValue`. Imports from recipe/: invalid, references,
spelling and types.
"""
