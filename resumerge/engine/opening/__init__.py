"""The opening of a recipe's sources, and the planning of its documents.

A recipe is one merge, or stages and a final merge of their results.
"""
