"""The Hugging Face Hub: requests, the standard cache, downloads, and the metadata cache.

Serves `sources/` and `mirror/`; nothing here knows of models, runs or recipes beyond repo names. May
import `resumerge.errors` and what lies below it. Imports huggingface_hub only inside of functions,
since that takes a second.
"""
