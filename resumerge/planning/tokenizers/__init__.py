"""The vocabulary and the chat template of the output.

`alignment` decides where each embedding row comes from, `chat_template` chooses the template. The
types are in `planning/output_vocabulary.py`, below the plan. Nothing here reads a tokenizer file:
`sources/tokenizers/` does. Imports from planning/: model_views, mismatch and plan.
"""
