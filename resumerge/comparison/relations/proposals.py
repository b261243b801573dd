"""How relations that single elements show are found.

Each is proposed by the first elements that differ, and then counted over all that follow: a row has
the share of elements that agree, never a guess from a sample.
"""

FIRST_ELEMENTS = 1 << 12
"""The elements, from the first that differs on, that propose relations."""

PROPOSED = 0.98
"""The share of these elements in which a relation has to show to be proposed."""
