"""Tokenizers: read of the models, aligned with each other, written for the output.

`vocabulary` reads a model's tokenizer files; `origin` says which part of a model has them, and
`required` which of them a recipe needs; `companion_content` reads files beside the weights, or in
them. `output_vocabulary` makes the tokens of the output,
`row_alignment` says where each of their rows comes from, and `chat_template` chooses the template.
`output_files` makes the files. Nothing here knows the plan. May import `layout/`, `sources/` and
what lies below them.
"""
