"""The properties of this machine: platform, memory, disks, GPU, speed, processes, system calls.

`platform.py` finds the kind of this machine, and `machine.py` its name, cores and disk space.
`host.py` collects facts for ``plan --json``, and `persistent_storage.py` finds folders that outlive
the machine. `memory.py` measures memory and the limits of cgroups, and `oom.py` counts OOM kills
and lowers a memory budget after a kill. `gpu.py` finds GPUs without torch, `blas.py` limits the
threads of NumPy's BLAS, and `speed.py` measures reading, writing and computing. `processes.py`
identifies processes and has a clock, and `stalled.py` finds what a stalled one waits for.
`system.py` has the features of the operating system beyond POSIX, for all rooms.

The functions read the machine's state and return it. They make no decisions about a merge, and
change no state outside this process. This room imports no other room.
"""
