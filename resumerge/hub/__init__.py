"""The Hugging Face Hub: requests, the standard cache, downloads, and the metadata cache.

Serves `sources/` and `mirror/`; nothing here knows of models, runs or recipes. May import
`resumerge.errors` and what lies below it. huggingface_hub is imported inside of functions only,
since that takes a second.
"""
