"""The k largest elements of whole tensors, found by scans over their blocks in little memory.

`find_largest` finds the threshold, by the keys in a bracket (`key_sample`, `bracket_keys`) or by
`histograms`. A `Selection` then makes the mask of the elements of a block run that are kept.
"""
