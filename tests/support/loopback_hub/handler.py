"""The choice between downloads and uploads for a request."""

from __future__ import annotations

from loopback_hub.downloads import Downloads
from loopback_hub.uploads import Uploads


class Handler(Uploads, Downloads):
    def route(self) -> None:
        if self.command in ("GET", "HEAD"):
            self.download()
        else:
            self.upload()
