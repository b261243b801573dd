"""``python -m resumerge``."""

from resumerge.start import main

main()
