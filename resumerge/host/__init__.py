"""The properties of this machine: platform, memory, disks, GPU, speed, processes, system calls.

The functions read the machine's state and return it. Nothing here decides what to do about it, or
changes anything outside this process. This room imports no other room.
"""
