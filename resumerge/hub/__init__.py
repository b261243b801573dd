"""The Hugging Face Hub: requests, the standard cache, downloads, and the metadata cache.

`sources/` and `mirror/` use it; nothing here knows of models, runs or recipes. This room may import
`resumerge.errors` and what lies below it. huggingface_hub is imported inside of functions only,
since that takes a second.
"""
