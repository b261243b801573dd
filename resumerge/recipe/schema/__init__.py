"""The sections and keys of a recipe file, and the readers of their values.

`keys`, `mixture`, `extraction` and `tokenizer` declare the sections. `sections` reads them and
collects all errors. `exclusions` checks which keys exclude or need each other. The other files
contain readers of single values, which raise `InvalidValue`. From recipe/, this folder imports only
invalid, references, spelling and types.
"""
