"""The models that one run writes: their list, the plan of a sweep, and the order of its units.

`models` lists the models, and `sweeps` plans the variants of a sweep. In a sweep, `unit_order` puts
units that share stored tensors together.
"""
