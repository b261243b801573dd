"""The commands as Python functions.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'

There is one file for each subject: `merging.py` has the functions that merge, `searching.py` has
`search`, and `recipes.py`, `runs.py` and `models.py` have the functions about recipes and methods,
about runs and finished models, and about models and their cached files. `calls.py` has the code
that they share: messages for Python users, and checks of arguments. `resumerge.options` declares
the options that `run`, `resume`, `plan` and others share.
"""

from __future__ import annotations

import warnings

from resumerge.api.merging import extract_expert, extract_lora, reproduce, resume, run
from resumerge.api.models import cache_check, cache_repair, compare
from resumerge.api.recipes import demo, explain, init, methods, plan
from resumerge.api.runs import clean, push, status, try_model, verify
from resumerge.api.searching import search

__all__ = [
    "cache_check",
    "cache_repair",
    "clean",
    "compare",
    "demo",
    "explain",
    "extract_expert",
    "extract_lora",
    "init",
    "methods",
    "plan",
    "push",
    "reproduce",
    "resume",
    "run",
    "search",
    "status",
    "try_model",
    "verify",
]

# huggingface_hub imports tqdm, which warns in notebooks without widgets. No widget is used here.
warnings.filterwarnings("ignore", message="IProgress not found")
