"""The Hugging Face Hub: requests, listings, the standard cache, content hashes.

`sources/` and `mirror/` use it; nothing here knows of models, runs or recipes. The type of a remote
file, its download and the metadata cache are in `remote/`. huggingface_hub is imported inside
functions only, since that takes a second.
"""
