"""The exchange between a driver and its tasks: heartbeats, finished shards, and giving tasks up.

`base` has the contract of the two sides: `Exchange` for the driver, `TaskEndpoint` for a task. They
meet in a folder that all machines see (`folder`), or in the bucket that the run is mirrored to
(`bucket`, `bucket_task`).
"""
