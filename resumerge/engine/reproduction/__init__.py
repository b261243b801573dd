"""The reproduction of a published model from its card, and the comparison of both models.

`original.py` reads the original from a folder, a Hub repo, or a place in a bucket. An ordinary run,
with the models pinned to the versions in the card, makes the model again. `comparison.py` compares
the files of both.
"""
