"""The progress of a merge on stderr (bar or lines) or stdout (JSON Lines), while it runs.

The engine calls `console_reporter` or `json_reporter`, the supervisor calls `supervision`;
`keepalive` prints a line when neither has printed for a while.
"""
