"""The properties of this machine: platform, memory, disks, GPU, speed, processes, system calls.

The functions read the machine's state and return it; nothing here decides what follows from it, or
changes anything but this process. This room imports no other one.
"""
