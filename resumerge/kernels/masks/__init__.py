"""Masks of a block run, as uint8 of 0 and 1: random masks, and masks by rank within rows."""
