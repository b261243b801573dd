"""Tokenizers: read from the models, aligned with each other, written for the output.

`vocabulary` reads a model's tokenizer files. `origin` finds the part of a model with an adapter
that has them, and `required` the models whose files a recipe needs. `companion_content` reads files
beside the weights, or in them. `output_vocabulary` makes the tokens of the output, `row_alignment`
finds the row of each token in the models, and `chat_template` chooses the template. `output_files`
makes the files. Nothing here knows the plan. May import `layout/`, `sources/` and what lies below
them.
"""
