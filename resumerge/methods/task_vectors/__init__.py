"""Methods that combine task vectors, the differences ``x - base``, and add them to the base.

One file for each method and its variants, such as those with TIES' sign consensus. `base.py` has
the base class of methods that make task vectors sparse.
"""
