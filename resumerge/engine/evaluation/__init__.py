"""The computation of a block: its operands are read, a method computes, the result is rounded.

`tensor_evaluator` computes ranges of tensors, with `kernel_backend` or `torch_backend`. `evaluator`
computes the blocks of a plan's units. `shared_statistics` caches statistics that several units
need, and `scratch` stores tensors that are computed once and read several times. `method_failures`
describes errors of a user's method. `input_hashes` identifies the inputs of blocks, and
`source_watch` checks that no source file changes during the merge.
"""
