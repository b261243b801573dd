"""Making a published model again from its card, and comparing the two.

`original.py` reads what is to be made again: a folder, a Hub repo, or a place in a bucket.
`comparison.py` compares its files with those of a run that made it again. The merge between both is
a run like any other, with the models as they are pinned in the card.
"""
