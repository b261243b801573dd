"""Experts of mixtures: their layouts in files, extraction of one expert, mixtures of dense models.

Files hold the experts of a layer as packed tensors, or as separate matrices. `views.py` shows every
model in the form that the recipe merges, with the reference's names: `separate_experts.py` takes
packed tensors apart, and `packed_experts.py` packs separate matrices. `written_experts.py` gives
the output the form of the reference's files. `extraction.py` shows one expert of a mixture as a
dense model, and `upcycling/` makes a mixture of dense models. The names of experts are in
`layout/expert_names.py`. May import tokenizers, layout and what lies below them.
"""
