"""The progress of a merge on stderr (bar or lines) or stdout (JSON Lines), while it runs.

`styles` has the values of ``--progress``, and chooses the reporter. The engine reports to
`console_reporter` or `json_reporter`, and the supervisor to `supervision`. `progress_state` stores
the reports, and `bars` draws bars with speed and time left. `keepalive` prints a line if nothing
was printed for some seconds. `upload` shows the progress of an upload.
"""
