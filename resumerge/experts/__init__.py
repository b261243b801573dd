"""Experts of mixtures: the layouts that files have them in, extraction, mixtures of dense models.

Files hold the experts of a layer as packed tensors, or as matrices of each expert. `views.py` shows
every model in the one form that the recipe merges, with the reference's names:
`separate_experts.py` takes packed tensors apart, `packed_experts.py` makes them of separate
matrices, and `written_experts.py` gives the output the form that the reference has.
`extraction.py` shows a mixture as the dense model that one expert is; `upcycling/` makes a mixture
of dense models. The names of experts are in `layout/expert_names.py`. May import tokenizers, layout
and what lies below them.
"""
