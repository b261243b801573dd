"""Documents about a merge that does not run: `plan`, its choices for this machine, `cache check`.

Returns dataclasses and dictionaries, and writes nothing. Imports everything in engine/; nothing in
engine/ imports it.
"""
