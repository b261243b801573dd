"""A fuzzer of the compiled kernels' arguments: ``make sanitize``.

It calls the functions of `resumerge.native._kernels`, half of the time with right arguments, else
with some wrong ones. A call may compute, or raise ValueError, TypeError or MemoryError, or what an
argument itself raises. If it raises, it has written no result. The sanitizers, under which
``make sanitize`` runs it, find reads and writes outside of the arguments. The seed and the number
alone determine a case.

`arguments` draws right arguments, `mistakes` makes them wrong, `calls` has the functions, `session`
runs cases. `hashes` makes right calls only, with every instruction set, and prints hashes of the
results, by which processors are compared: ``make aarch64``.
"""
