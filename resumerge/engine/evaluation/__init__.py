"""Computing a block: its operands are read, a method computes, the result is rounded.

`tensor_evaluator` computes ranges of tensors, by `kernel_backend` or `torch_backend`, and
`evaluator` the blocks of a plan; `scratch` holds stage results that are computed once and read
often; `method_failures` names what failed; `input_hashes` say what a block was computed from, and
`source_watch` sees to it that no source changes meanwhile.
"""
