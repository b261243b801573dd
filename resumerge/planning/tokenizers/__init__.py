"""The vocabulary and the chat template of the output.

`output_vocabulary` has the types, `alignment` decides where each embedding row comes from, and
`chat_template` chooses the template. Nothing here reads a tokenizer file: `sources/tokenizers/`
does. Imports from planning/: model_views and plan.
"""
