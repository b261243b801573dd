"""The gates of routers: random numbers, or directions that are made of prompts.

`layer_gates.py` chooses what computes the gates of each layer; `prompts.py` makes tokens of texts.
`embedding.py` and `hidden_states.py` are the steps that make directions of tokens; the latter
computes layers by `decoder.py`, which alone imports torch and transformers. `directions.py`
compares gates.
"""
