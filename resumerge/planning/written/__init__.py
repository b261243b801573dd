"""The models that one run writes: their list, the plan of a sweep, and the order of its units."""
