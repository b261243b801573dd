"""Speed and memory of resumerge, side by side with mergekit and with the floor of the machine."""
