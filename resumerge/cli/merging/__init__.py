"""What the commands that merge share: `merge_command` runs a merge, `detach` in the background."""
