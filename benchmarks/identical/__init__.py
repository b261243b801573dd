"""Whether two versions of the program write the same bytes: `python -m benchmarks.identical`."""
