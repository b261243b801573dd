"""Dense linear algebra: by torch, imported where a plan needs it, or by NumPy's BLAS and LAPACK."""
