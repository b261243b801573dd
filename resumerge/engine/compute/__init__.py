"""Computing on this machine: its budget, and the pending units of a plan, one process.

A run computes its whole plan so; a task on a cluster (`cluster/`) a plan of one shard.
"""
