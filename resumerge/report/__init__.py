"""What is known of runs, as data: documents of ``--json``, histories for plots, sentences.

Everything here is read from ledgers, mirrors and declarations, and returned as dictionaries,
dataclasses and text. Nothing here prints, draws or imports `resumerge.ui`.

Start at `status` (one run, or all), `history` (samples over time), `narrative` (sentences) and
`resume_command` (the command that resumes a run).
"""
