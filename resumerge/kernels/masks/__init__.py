"""Masks of a block, as uint8 of 0 and 1: random, by rank within rows, and how they are applied."""
