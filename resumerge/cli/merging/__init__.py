"""Code of the commands that merge: `merge_command` merges, `detach` moves it to the background."""
