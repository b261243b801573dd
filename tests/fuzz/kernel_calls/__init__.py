"""A fuzzer of the compiled kernels' arguments: ``make sanitize``.

It calls the functions of `resumerge.native._kernels`, half of the time with arguments that go
together, otherwise with some that do not. A call may compute, or raise ValueError, TypeError or
MemoryError, or what an argument itself raises. Where it raises, no result was written. That nothing
outside of the arguments is read or written is for the sanitizers to say, under which
``make sanitize`` runs it. A case follows from the seed and its number alone.

`arguments` draws arguments that are right, `mistakes` makes them wrong, `calls` has the functions,
`session` runs cases. `hashes` makes only calls that are right, with every instruction set, and
prints hashes of the results, by which processors are compared: ``make aarch64``.
"""
