"""Methods that merge a base with exactly one other model. One file for each method."""
