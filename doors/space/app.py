"""The page to merge from, as a Space of Hugging Face: people log in, each in a folder of their own.

What one person, and all together, may use is written here, for the hardware that the Space has.
"""

import sys
from pathlib import Path

from resumerge.errors import ResumergeError
from resumerge.ui.web.space.limits import Limits
from resumerge.ui.web.space.server import serve_space

LIMITS = Limits(all_runs=3, runs=1, disk=20 * 10**9, memory=4 * 10**9)

if __name__ == "__main__":
    try:
        serve_space(Path("people"), LIMITS)
    except ResumergeError as error:
        sys.exit(str(error))
