# /// script
# requires-python = ">=3.11"
# dependencies = ["resumerge"]
#
# [tool.uv]
# exclude-dependencies = ["torch"]
#
# [tool.hf-jobs]
# timeout = "12h"
# secrets = ["HF_TOKEN"]
# ///
"""Merges as `resumerge run` does, without an installation: `uv run merge.py CONFIG OUT`.

It takes all options of `resumerge run`. PyTorch is left out; what needs it says so. The table for
`hf jobs uv run` has what a merge on a machine of Hugging Face needs.
"""

import sys

from resumerge.__main__ import main

if __name__ == "__main__":
    sys.argv[:1] = ["resumerge", "run"]
    main()
