"""Computing a block: its operands are read, a method computes, the result is rounded.

`tensor_evaluator` computes ranges of tensors, by `kernel_backend` or `torch_backend`. `evaluator`
computes the blocks of a plan's units. `scratch` holds stage results that are computed once and read
often. `method_failures` describes errors of a user's method. `input_hashes` identify the inputs of
a block, and `source_watch` checks that no source file changes during the merge.
"""
