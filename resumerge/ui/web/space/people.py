"""The person of a browser's session, after a login with Hugging Face."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from resumerge.errors import refuse
from resumerge.ui.web.space.folder import Desk, PersonalFolder
from resumerge.ui.web.space.limits import Limits

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}", re.ASCII)


class People:
    """The people of a Space. Each person has a folder.

    Args:
        folder: the folder that contains the people's folders.
        limits: the limits of each person.
    """

    def __init__(self, folder: Path, limits: Limits) -> None:
        self._folder, self._limits = folder.resolve(), limits
        self._desks: dict[str, Desk] = defaultdict(Desk)

    def folder_of(self, request: gr.Request) -> PersonalFolder:
        """Return the folder of the person who sends a request.

        The folder has the name of the person's identity at Hugging Face, since the user name may
        pass to another person.

        Raises:
            InputError: nobody is logged in, or the login has expired.
        """
        login = _session_of(request).get("oauth_info") or {}
        user_info = login.get("userinfo", {})
        identity, name = str(user_info.get("sub", "")), str(user_info.get("preferred_username", ""))
        token, expiry = login.get("access_token"), login.get("expires_at")
        is_valid = token and (expiry is None or time.time() < expiry)
        if not is_valid or not _NAME.fullmatch(identity) or not _NAME.fullmatch(name):
            raise refuse(
                "You are not logged in",
                expected="a login with Hugging Face, which has not expired",
                fix="press the button to sign in, at the top; merges that are at work go on",
            )
        folder = self._folder / identity
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return PersonalFolder(folder, name, str(token), self._limits, self._desks[identity])


def _session_of(request: gr.Request) -> Mapping[str, Any]:
    """Return the session in a request's cookie. The server has signed the cookie."""
    scope: Mapping[str, Any] = getattr(request.request, "scope", {})
    session: Mapping[str, Any] = scope.get("session", {})
    return session
