"""The gates of routers: random numbers, or directions that are computed from prompts.

`layer_gates.py` chooses how the gates of each layer are computed. `prompts.py` splits prompts into
tokens. `embedding.py` and `hidden_states.py` are the steps that compute directions from tokens.
`hidden_states.py` computes layers by `decoder.py`, the only module here that imports torch and
transformers. `directions.py` gives directions the length 1, and `dependence.py` compares the gates
of a layer.
"""
