"""``resumerge compare``: what is the same in two or more models, and what the differences are.

`models.py` opens the models and finds which tensors belong together, `facts.py` compares configs
and tokenizers, `tensor.py` reads one tensor of all models and returns a row of sums, with the
evidence of `relations/`; `journal.py` keeps the rows, `run.py` computes those that are missing, and
`document.py` says what they come to.
"""

from resumerge.comparison.run import compare_models

__all__ = ["compare_models"]
