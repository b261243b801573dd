"""Tokenizers of the input models: their vocabularies, and maps from rows to rows of embeddings.

What the output's tokenizer is made of is decided in `planning/tokenizers/`. May import
`sources/remote/` and the files of `sources/` that describe a model, not `sources/adapters/`.
"""
