"""The commands as Python functions.

Example:
    >>> import resumerge
    >>> resumerge.run("configs/ties.yaml", "merged", memory="2GB")
    >>> resumerge.status("merged")["runs"][0]["state"]
    'done'

The options of `run`, `resume` and `plan` are declared in `resumerge.options`.
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

# tqdm, which comes with huggingface_hub, asks every notebook for widgets that nothing here shows.
warnings.filterwarnings("ignore", message="IProgress not found")
