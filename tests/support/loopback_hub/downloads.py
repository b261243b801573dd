"""Answers to downloads: facts about repos, and the bytes of files."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback_hub.exchange import Exchange
from loopback_hub.repos import Blob


class Downloads(Exchange):
    def download(self) -> None:
        url = urlsplit(self.path)
        path = unquote(url.path)
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree)/(.+))?", path):
            repo, verb, revision = match.groups()
            self.api(repo, verb or "revision", revision, "blobs" in parse_qs(url.query))
        elif path == "/api/models":
            self.listed(parse_qs(url.query))
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+|refs/pr/\d+)/(.+)", path):
            self.resolve(*match.groups())
        elif match := re.fullmatch(r"/cdn/([0-9a-f]{64})", path):
            self.content(match[1])
        else:
            self.refuse(404)

    def find(
        self, repo: str, revision: str | None, what: str = "read"
    ) -> tuple[str, dict[str, Blob]] | None:
        """Return the commit and its files, or None after sending an error."""
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
            return None
        if not self.may(what, repo):
            return None
        store = self.hub.repos.get(repo)
        if store is None:
            self.refuse(404, "RepoNotFound")
            return None
        commit = store.branches.get(revision or "main", revision or "main")
        if commit not in store.commits:
            self.refuse(404, "RevisionNotFound")
            return None
        return commit, store.commits[commit]

    def listed(self, asked: dict[str, list[str]]) -> None:
        """Answer a search with the models that it finds, of those that the token may read."""
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
            return
        words, author = asked.get("search", [""])[0], asked.get("author", [""])[0]
        files = "siblings" in asked.get("expand", ())
        found = [
            {"id": name, "modelId": name, "private": repo.private, "tags": []}
            | ({"siblings": [{"rfilename": file} for file in repo.files()]} if files else {})
            for name, repo in self.hub.repos.items()
            if words.lower() in name.lower()
            and (not author or name.split("/")[0] == author)
            and self.permits("read", name)
        ]
        self.json(found[: int(asked.get("limit", ["1000"])[0])])

    def api(self, repo: str, verb: str, revision: str | None, blobs: bool) -> None:
        if not (found := self.find(repo, revision)):
            return
        commit, files = found
        body: Any
        if verb == "tree":
            body = [entry(name, blob) for name, blob in files.items()]
        else:
            details = {
                name: {"blobId": blob.blob_id, "size": len(blob.data)}
                | ({"lfs": lfs(blob)} if blob.lfs else {})
                for name, blob in files.items()
            }
            body = {
                "id": repo,
                "modelId": repo,
                "sha": commit,
                "private": self.hub.repos[repo].private,
                "gated": False,
                "tags": [],
                "downloads": 0,
                "likes": 0,
                "siblings": [
                    {"rfilename": name} | (details[name] if blobs else {}) for name in files
                ],
            }
        self.json(body)

    def resolve(self, repo: str, revision: str, name: str) -> None:
        self.file = name
        if not (found := self.find(repo, revision)):
            return
        commit, files = found
        if name not in files:
            self.refuse(404, "EntryNotFound", {"X-Repo-Commit": commit})
            return
        blob = files[name]
        headers = {"X-Repo-Commit": commit, "ETag": f'"{blob.etag}"', "Accept-Ranges": "bytes"}
        if blob.lfs and self.hub.xet:
            headers["X-Xet-Hash"] = blob.sha256
            headers["X-Xet-Refresh-Route"] = f"{self.hub.url}/api/xet/token"
        if blob.lfs:
            self.headed(
                302,
                headers
                | {
                    "Location": f"{self.hub.cdn}/{blob.sha256}?Signature=secret",
                    "X-Linked-Size": str(len(blob.data)),
                    "X-Linked-ETag": f'"{blob.sha256}"',
                },
                0,
            )
        else:
            self.ranged(blob.data, headers)

    def content(self, sha256: str) -> None:
        found = self.hub.blob(sha256)
        if found is None:
            self.refuse(404)
            return
        self.file, blob = found
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
            return
        self.ranged(blob.data, {"ETag": f'"{blob.cdn_etag}"', "Accept-Ranges": "bytes"})

    def ranged(self, data: bytes, headers: dict[str, str]) -> None:
        if fault := self.hub.fault_for(self.command, self.path, self.file, "wrong_byte"):
            at = fault.wrong_byte or 0
            data = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if fault := self.hub.fault_for(self.command, self.path, self.file, "short_by"):
            data = data[: -(fault.short_by or 0)]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        same = self.headers.get("If-Range", headers["ETag"]) == headers["ETag"]
        same |= not self.hub.heeds_if_range
        if wanted is None or not self.hub.ranges or not same:
            self.headed(200, headers, len(data))
            self.body(data)
            return
        first, last = int(wanted[1]), min(int(wanted[2] or len(data)), len(data) - 1)
        if first > last:
            self.refuse(416, None, {"Content-Range": f"bytes */{len(data)}"})
            return
        content_range = {"Content-Range": f"bytes {first}-{last}/{len(data)}"}
        self.headed(206, headers | content_range, last + 1 - first)
        self.body(data[first : last + 1])


def lfs(blob: Blob) -> dict[str, Any]:
    return {"sha256": blob.sha256, "size": len(blob.data), "pointerSize": 134}


def entry(name: str, blob: Blob) -> dict[str, Any]:
    """Return a file's entry in a listing of the tree."""
    facts = {"type": "file", "path": name, "size": len(blob.data), "oid": blob.blob_id}
    return facts | ({"lfs": lfs(blob) | {"oid": blob.sha256}} if blob.lfs else {})
