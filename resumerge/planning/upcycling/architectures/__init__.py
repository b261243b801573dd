"""Output architectures: which models each takes, its names of tensors, fields of its config.json.

`base.py` says what a table has. A new architecture is one file, named in `registry.py`.
`dense_defaults.py` is what a dense model's config.json leaves out.
"""
