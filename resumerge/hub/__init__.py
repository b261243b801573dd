"""The Hugging Face Hub: requests, listings, the standard cache, content hashes.

`sources/` and `mirror/` use this room. It does not depend on runs or recipes, and does not
interpret the content of files. The base class of remote files, their download and the metadata
cache are in `remote/`. huggingface_hub is imported only inside of functions, because the import
takes a second.
"""
