"""Tokenizers: read from the models, aligned with each other, and written for the output.

`vocabulary` reads a model's tokenizer files. `origin` decides which part of a model with an adapter
has these files, and `required` reads the tokenizers that a recipe needs. `companion_content` reads
companions from their files, or from the weight file that contains them. `output_vocabulary` makes
the tokens of the output, `row_alignment` finds the row of each token in the models, and
`chat_template` chooses the template. `output_files` makes the output's files. No module here
depends on the plan. May import `layout/`, `sources/` and the rooms below them.
"""
