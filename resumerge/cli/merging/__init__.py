"""Code of the commands that merge: `merge_command` runs a merge, `detach` in the background."""
