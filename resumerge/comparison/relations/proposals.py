"""The thresholds of relations that hold for single elements.

The first differing elements propose a relation, which is then counted over all following elements.
The share of agreeing elements in the journal is never an estimate from a sample.
"""

FIRST_ELEMENTS = 1 << 12
"""The number of elements, from the first differing one on, that propose relations."""

PROPOSED = 0.98
"""The least share of these elements that agree with a relation for it to be proposed."""
