"""Dense linear algebra by NumPy's BLAS and LAPACK, or by torch, which is imported where needed."""
