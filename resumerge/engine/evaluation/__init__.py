"""Computing a block: its operands are read, a method computes, the result is rounded.

`evaluator` computes, by `kernel_backend` or `torch_backend`; `scratch` holds stage results that it
computes once and reads often; `method_failures` names what failed; `input_hashes` say what a block
was computed from, and `source_watch` sees to it that no source changes meanwhile.
"""
