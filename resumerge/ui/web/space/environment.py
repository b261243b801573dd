"""The environment variables of the processes that work for a person."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

NAMES = frozenset(
    {
        *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "TMPDIR", "TZ", "LANG", "LC_ALL"),
        *("LC_CTYPE", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "OMP_NUM_THREADS"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
        *("HF_ENDPOINT", "HF_HUB_DISABLE_XET", "HF_HUB_DISABLE_TELEMETRY", "HF_HUB_OFFLINE"),
    }
)
"""The variables of this process that are passed on. Other variables may be secrets of the Space.
"""

PREFIX = "RESUMERGE_"

HOME = ".home"
"""The folder for caches in a person's folder. A shared cache would expose private models."""


def environment_of(folder: Path, token: str, own: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of the processes that work for a person.

    Args:
        folder: the person's folder, whose subfolder `HOME` is the home folder of the processes.
        token: the person's token for the Hub.
        own: the variables of this process.
    """
    home_folder = folder / HOME
    return {
        **{name: own[name] for name in own if name in NAMES or name.startswith(PREFIX)},
        "HOME": str(home_folder),
        "HF_HOME": str(home_folder / "huggingface"),
        "HF_TOKEN": token,
        # The processes must not use credentials of the machine.
        "AWS_EC2_METADATA_DISABLED": "true",
        "NO_GCE_CHECK": "true",
    }
