"""The thresholds of relations that single elements show.

The first elements that differ propose a relation, which is then counted over all following
elements: a row has the share of elements that agree, never a guess from a sample.
"""

FIRST_ELEMENTS = 1 << 12
"""The elements, from the first that differs on, that propose relations."""

PROPOSED = 0.98
"""The share of these elements in which a relation has to show to be proposed."""
