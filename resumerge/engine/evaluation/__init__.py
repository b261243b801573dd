"""Computing a block: its operands are read, a method computes, the result is rounded.

`evaluator` computes, with kernels or torch as backend; `input_hashes` say what a block was computed
from, and `source_watch` sees to it that no source changes meanwhile.
"""
