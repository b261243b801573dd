"""Answers to uploads: repos are created, large contents stored, and commits made.

The protocol is that of `HfApi.create_repo`, `preupload_lfs_files` and `create_commit`: preupload
answers which files are large; the LFS batch answers where to send their contents (one PUT to the
CDN, or one for each part and a completion), or nothing for stored contents; the commit is lines of
JSON, the first of which may name the parent that must be the branch's commit.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import uuid
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from loopback_hub.downloads import Downloads, entry
from loopback_hub.exchange import STALL_SECONDS
from loopback_hub.repos import GITATTRIBUTES, LFS_SUFFIXES, Blob, Repo

REPO = r"([^/]+/[^/]+)"


class Uploads(Downloads):
    def upload(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/cdn/upload/([0-9a-f]{64})", path):
            self.file = match[1]
        data = self.arrived()
        if data is None:
            return
        if fault := self.hub.fault_for(self.command, self.path, self.file, "status"):
            self.refuse(fault.status or 500, fault.code, fault.headers)
        elif self.file:
            self.put(data)
        elif path == "/api/repos/create":
            self.create(json.loads(data))
        elif match := re.fullmatch(f"/api/models/{REPO}/branch/(.+)", path):
            if found := self.find(match[1], None, "write"):
                with self.hub.lock:
                    self.hub.repos[match[1]].branches.setdefault(match[2], found[0])
                self.json({})
        elif path == "/api/validate-yaml":
            self.json({"errors": [], "warnings": []})
        elif match := re.fullmatch(f"/api/models/{REPO}/(preupload|paths-info|commit)/(.+)", path):
            repo, verb, revision = match.groups()
            if found := self.find(repo, revision, "read" if verb == "paths-info" else "write"):
                self.of_repo(verb, repo, revision, found[1], data)
        elif match := re.fullmatch(f"/{REPO}.git/info/lfs/(objects/batch|verify|complete)", path):
            if self.find(match[1], None, "write"):
                self.lfs_call(match[1], match[2], json.loads(data))
        else:
            self.refuse(404)

    def arrived(self) -> bytes | None:
        """Read and return the request's body; None if it did not arrive whole."""
        cut = self.hub.fault_for(self.command, self.path, self.file, "cut_upload")
        stall = self.hub.fault_for(self.command, self.path, self.file, "stall_after")
        at = (cut and cut.cut_upload) or (stall and stall.stall_after)
        data = self.read_body(keep=True, cut=at)
        if stall is not None:
            self.hub.over.wait(STALL_SECONDS)
        return data

    def create(self, asked: dict[str, Any]) -> None:
        name = "/".join(part for part in (asked.get("organization"), asked["name"]) if part)
        if not self.may("write", name):
            return
        answer = {"url": f"{self.hub.url}/{name}", "id": name}
        with self.hub.lock:
            there = name in self.hub.repos
            if not there:
                repo = self.hub.repos[name] = Repo()
                repo.private = bool(asked.get("private")) or asked.get("visibility") == "private"
                self.hub.keep(name, repo, {".gitattributes": Blob(GITATTRIBUTES, False)}, "main")
        if there:
            answer["error"] = "You already created this model repo"
        self.json(answer, 409 if there else 200)

    def of_repo(
        self, verb: str, repo: str, revision: str, files: dict[str, Blob], data: bytes
    ) -> None:
        if verb == "preupload":
            asked = json.loads(data)["files"]
            self.json({"files": [self.mode(file, files) for file in asked]})
        elif verb == "paths-info":
            names = parse_qs(data.decode())["paths"]
            self.json([entry(name, files[name]) for name in names if name in files])
        else:
            self.make_commit(repo, revision, [json.loads(line) for line in data.splitlines()])

    def mode(self, asked: dict[str, Any], files: dict[str, Blob]) -> dict[str, Any]:
        """Return how a file is to be uploaded, and the present file of that name."""
        name, sample = asked["path"], base64.b64decode(asked["sample"])
        large = name.endswith(LFS_SUFFIXES) or asked["size"] > self.hub.regular_limit
        large = large or (self.hub.binary_is_large and b"\0" in sample)
        oid = {"oid": files[name].etag} if name in files else {}
        return {
            "path": name,
            "uploadMode": "lfs" if large else "regular",
            "shouldIgnore": False,
        } | oid

    def lfs_call(self, repo: str, verb: str, asked: dict[str, Any]) -> None:
        if verb == "objects/batch":
            objects = [self.actions(repo, item) for item in asked["objects"]]
            self.json({"transfer": "basic", "objects": objects})
        elif verb == "verify":
            stored = self.hub.stored.get(asked["oid"])
            if stored is not None and len(stored) == asked["size"]:
                self.json({})
            else:
                self.refuse(404, None, None, "Object does not exist or has another size")
        else:
            self.complete(asked)

    def actions(self, repo: str, item: dict[str, Any]) -> dict[str, Any]:
        """Return what a client has to do for a content: nothing if it is stored."""
        oid, size = item["oid"], item["size"]
        if oid in self.hub.stored:
            return {"oid": oid, "size": size}
        target = f"{self.hub.cdn}/upload/{oid}?X-Amz-Signature=secret"
        header: dict[str, str] = {}
        if self.hub.part_bytes is not None and size > self.hub.part_bytes:
            upload = uuid.uuid4().hex
            self.hub.parts[upload] = {}
            count = -(-size // self.hub.part_bytes)
            header = {"chunk_size": str(self.hub.part_bytes)} | {
                str(n): f"{target}&upload={upload}&part={n}" for n in range(1, count + 1)
            }
            target = f"{self.hub.url}/{repo}.git/info/lfs/complete?upload={upload}"
        verify = {"href": f"{self.hub.url}/{repo}.git/info/lfs/verify"}
        actions = {"upload": {"href": target, "header": header}, "verify": verify}
        return {"oid": oid, "size": size, "actions": actions}

    def put(self, data: bytes) -> None:
        """Store a content, or a part of one, that arrives at the CDN."""
        query = parse_qs(urlsplit(self.path).query)
        if "part" in query:
            self.hub.parts[query["upload"][0]][int(query["part"][0])] = data
        elif hashlib.sha256(data).hexdigest() != self.file:
            self.refuse(400, None, None, "BadDigest")
            return
        else:
            self.hub.stored[self.file] = data
        self.headed(200, {"ETag": f'"{hashlib.md5(data).hexdigest()}"'}, 0)

    def complete(self, asked: dict[str, Any]) -> None:
        upload = parse_qs(urlsplit(self.path).query)["upload"][0]
        parts = self.hub.parts.pop(upload, {})
        wanted = [(part["partNumber"], part["etag"].strip('"')) for part in asked["parts"]]
        came = [(n, hashlib.md5(parts[n]).hexdigest()) for n in sorted(parts)]
        whole = b"".join(parts[n] for n in sorted(parts))
        if came != wanted or hashlib.sha256(whole).hexdigest() != asked["oid"]:
            self.refuse(400, None, None, "Parts are missing, or not what was said")
            return
        self.hub.stored[asked["oid"]] = whole
        self.json({"success": True})

    def make_commit(self, name: str, branch: str, lines: list[dict[str, Any]]) -> None:
        with self.hub.lock:
            repo = self.hub.repos[name]
            parent = lines[0]["value"].get("parentCommit")
            self.hub.messages.append(lines[0]["value"].get("summary"))
            if branch not in repo.branches:
                wrong = (404, "RevisionNotFound", "Invalid rev id: " + branch)
            elif parent is not None and parent != repo.branches[branch]:
                wrong = (412, None, "A commit has happened since. Please refresh and try again.")
            else:
                files = dict(repo.files(branch))
                wrong = self.changed(files, lines[1:])
            if wrong is None:
                commit = self.hub.keep(name, repo, files, branch)
        if wrong is not None:
            status, code, message = wrong
            self.refuse(status, code, None, message)
            return
        url = f"{self.hub.url}/{name}/commit/{commit}"
        self.json({"success": True, "commitOid": commit, "commitUrl": url, "hookOutput": ""})

    def changed(
        self, files: dict[str, Blob], lines: list[dict[str, Any]]
    ) -> tuple[int, str | None, str] | None:
        """Apply a commit's lines to the files, and return the error of the first wrong line."""
        for line in lines:
            key, value = line["key"], line["value"]
            path = value["path"]
            if path.startswith("/") or ".." in path.split("/") or path.split("/")[0] == ".git":
                return 400, None, f"Invalid path: {path}"
            if key == "file":
                data = base64.b64decode(value["content"])
                if len(data) > self.hub.regular_limit:
                    return 400, None, f"{path} is larger than 10 MiB, please use git-lfs"
                files[path] = Blob(data, False)
            elif key == "lfsFile":
                if value["oid"] not in self.hub.stored:
                    return 400, None, "LFS pointer pointed to a file that does not exist"
                files[path] = Blob(self.hub.stored[value["oid"]], True)
            elif key == "deletedFile":
                if files.pop(path, None) is None:
                    return 404, "EntryNotFound", "A file with this name doesn't exist"
            else:
                return 400, None, f"Unknown operation: {key}"
        return None
