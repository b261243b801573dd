"""Functions that torch computes (singular values, softmax), imported where a plan needs them."""
