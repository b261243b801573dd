"""The Hugging Face Hub: requests, listings, the standard cache, content hashes.

`model.py` lists the files of a repo at a commit, and `file.py` has one file: its copy in the
standard cache (`cache.py`), and its download, through Xet by `xet.py`. `content_hash.py` compares
bytes with the Hub's hash. `calls.py` makes small requests, with retries and the errors that users
see. `http.py` streams a GET, and chooses its token. `search.py` searches for models.

`sources/` and `mirror/` use this room. It does not depend on runs or recipes, and does not
interpret the content of files. The base class of remote files, their download and the metadata
cache are in `remote/`. huggingface_hub is imported only inside of functions, because the import
takes a second.
"""
