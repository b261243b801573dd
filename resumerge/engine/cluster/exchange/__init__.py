"""The exchange between a driver and its tasks: heartbeats, finished shards, and giving tasks up.

`base` defines the contract of both sides: `Exchange` for the driver, `TaskEndpoint` for a task.
They exchange files in a folder that all machines see (`folder`), or objects in the bucket that the
run is mirrored to (`bucket`, `bucket_task`). `conflicts` compares a shard that another task
published with the hashes of this machine.
"""
