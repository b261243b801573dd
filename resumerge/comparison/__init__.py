"""``resumerge compare``: the differences between two or more models, tensor by tensor.

`models.py` opens the models and matches their tensors, and `facts.py` compares configs and
tokenizers. `tensor.py` reads one tensor of all models, in the order of its elements
(`in_order.py`), and returns a row of sums, with the evidence of `relations/`; `values.py` has the
numbers that both are computed from. `journal.py` stores the rows, `run.py` computes missing rows,
and `document.py` adds them up: by `totals.py` for each pair, by `task_vectors.py` for fine-tunes of
one base. `findings.py` describes the relation of a pair.
"""

from resumerge.comparison.run import compare_models

__all__ = ["compare_models"]
