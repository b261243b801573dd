"""The properties of this machine: platform, memory, disks, GPU, speed, processes, system calls.

The functions read the machine's state and return it. They make no decisions about a merge, and
change no state outside this process. This room imports no other room.
"""
