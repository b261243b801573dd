"""The sections and keys of a recipe file, and the readers of their values.

`keys` declares the sections of a merge, `mixture` those of a mixture of experts, and `extraction`
those of an extracted adapter. `sections` reads them and collects all errors. `exclusions` checks
which keys exclude or need each other. The other files contain readers of single values, which raise
`InvalidValue`: `settings` reads the value of a parameter, `layer_ranges` the layers of a source,
`output_dtypes` a dtype or quantisation, and `tokenizer` the keys of tokenizer and chat template.
From recipe/, this folder imports only invalid, references, spelling and types.
"""
