"""``resumerge compare``: the differences between two or more models, tensor by tensor.

`models.py` opens the models and matches their tensors, and `facts.py` compares configs and
tokenizers. `tensor.py` reads one tensor of all models and returns a row of sums, with the evidence
of `relations/`. `journal.py` stores the rows, `run.py` computes missing rows, and `document.py`
adds them up.
"""

from resumerge.comparison.run import compare_models

__all__ = ["compare_models"]
