"""Open the sources of a recipe and plan its documents: one merge, or stages and their result."""
