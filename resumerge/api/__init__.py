"""The commands as Python functions.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'

`resumerge.options` declares the options that `run`, `resume`, `plan` and others share.
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
