"""The models that one run writes: a list of them, and the plan of a sweep, which makes several."""
