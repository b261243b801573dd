"""A Hub on the loopback interface that huggingface_hub's own client can use.

It stores repos with several commits and branches, redirects large files to a second host name as
the real one redirects to its CDN, answers range requests, accepts uploads (`uploads.py`), counts
every byte of every file, and causes faults on request (`Hub.fail`, `Hub.shaky`).
"""

from loopback_hub.faults import Shaky
from loopback_hub.hub import Hub, Request
from loopback_hub.repos import Blob, Repo

__all__ = ["Blob", "Hub", "Repo", "Request", "Shaky"]
