"""Experts of mixtures: their layouts in files, extraction of one expert, mixtures of dense models.

Files hold the experts of a layer as packed tensors, or as separate matrices. `views.py` presents
every model in the form that the recipe merges, with the reference's names: `separate_experts.py`
splits packed tensors, and `packed_experts.py` packs separate matrices. `written_experts.py`
converts the output to the form of the reference's files. `extraction.py` presents one expert of a
mixture as a dense model, and `upcycling/` makes a mixture of dense models. The names of experts are
in `layout/expert_names.py`. This room may import tokenizers, layout and the rooms below them.
"""
