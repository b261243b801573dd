"""Dense linear algebra by NumPy's BLAS and LAPACK, or by torch, which is imported where needed.

NumPy computes `low_rank`, the largest singular values and vectors of a matrix that is read by rows,
and `core_space`, the shared bases in which adapters are combined. torch computes `spectral`, the
equal singular values of Iso-C, and `divergence`, the importance of changes in Arcee fusion.
"""
