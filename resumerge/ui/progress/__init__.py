"""The progress of a merge on stderr (bar or lines) or stdout (JSON Lines), while it runs.

`reporters` hear from the engine, `supervision` from the supervisor, `keepalive` prints a line when
neither has printed for a while. Imports `resumerge.ui.terminal`, and nothing else of
`resumerge.ui`.
"""
