"""What this machine is and has: platform, memory, disks, GPU, speed, processes.

Functions read the machine's state and return it; nothing here decides what follows from it, or
changes anything but this process. Imports no other room.
"""
