"""The Hugging Face Hub: requests, listings, the standard cache, content hashes.

`sources/` and `mirror/` use it; nothing here knows of models, runs or recipes. What a remote file
is, its download and the metadata cache are of `remote/`. huggingface_hub is imported inside of
functions only, since that takes a second.
"""
