"""``python -m resumerge``."""

from resumerge.cli import main

main()
