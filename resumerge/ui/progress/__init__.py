"""The progress of a merge on stderr (bar or lines) or stdout (JSON Lines), while it runs.

The engine reports to `console_reporter` or `json_reporter`, and the supervisor to `supervision`.
`keepalive` prints a line if nothing was printed for some seconds.
"""
