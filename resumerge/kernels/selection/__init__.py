"""The k largest elements of whole tensors, found by scans over their blocks in little memory.

`find_largest` finds them, by the keys in a bracket (`key_sample`, `bracket_keys`) or by
`histograms`. A `Selection` makes the mask of a run's elements that are among them.
"""
