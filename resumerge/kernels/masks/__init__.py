"""Masks of a block run, as uint8 of 0 and 1.

`random` keeps every element with the same probability, and `ranks` with a probability that depends
on the rank of an element within its row.
"""
