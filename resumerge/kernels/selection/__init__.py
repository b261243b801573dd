"""The k largest elements of whole tensors, found by scans over their blocks in little memory.

`find_largest` finds the threshold, by the keys in a bracket (`key_sample`, `bracket_keys`) or by
`histograms`. The `Selection` of `selection` then makes the mask of the elements of a block run that
are kept. `keys` turns floats into integers of the same order. `limits` has the sizes of samples and
brackets, and estimates the memory of a selection for a plan. Sampled and collected keys are
appended to a `growing_array`.
"""
