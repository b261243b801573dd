"""The server of the page for people who log in with Hugging Face."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from resumerge.errors import refuse
from resumerge.ui.web.server import check_gradio, listen, run_app
from resumerge.ui.web.space.folder import declared_for_people
from resumerge.ui.web.space.limits import Limits

NEEDED = ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OAUTH_SCOPES", "OPENID_PROVIDER_URL")
"""The environment variables of a Space with ``hf_oauth: true``."""

HEADING = """\
# resumerge
Merge models of the Hub. Every merge is mirrored to a private repo of yours as it works: where this
Space is restarted, it goes on from there."""


def serve_space(
    folder: Path,
    limits: Limits,
    *,
    host: str = "0.0.0.0",
    port: int = 7860,
    listening: Callable[[str], None] = print,
) -> None:
    """Serve the page until a signal ends the process. Each person has a separate folder.

    Args:
        folder: the folder that contains the people's folders; it is created if it is missing.
        limits: the limits of each person.
        host: the address of this machine to listen at.
        port: the port; 0 for any free port.
        listening: called with the page's address.

    Raises:
        InputError: Gradio is not installed, this is not a Space with OAuth, or the port is in use.
    """
    check_gradio()
    check_space(os.environ)
    with listen(host, port) as listener:
        from resumerge.ui.web.page import app_of, build
        from resumerge.ui.web.space.parts import SpacePart
        from resumerge.ui.web.space.people import People

        declarations = declared_for_people()
        people = People(folder, limits)
        space = SpacePart(people, declarations)
        app = app_of(build(people.folder_of, declarations, HEADING, space))
        names = os.environ.get("SPACE_HOST", "").split(",")
        run_app(app, listener, host, listening, [*filter(None, names)])


def check_space(environment: Mapping[str, str]) -> None:
    """Check that this is a Space with OAuth, where people can log in.

    On any other machine, Gradio would log in everybody as the user of the machine.

    Args:
        environment: the environment variables of this process.

    Raises:
        InputError: this is not a Space, or OAuth is off.
    """
    missing_variables = [name for name in NEEDED if not environment.get(name)]
    if (
        environment.get("SYSTEM") == "spaces"
        and environment.get("SPACE_ID")
        and not missing_variables
    ):
        return
    raise refuse(
        "This is no Space of Hugging Face where people can log in",
        expected="SYSTEM=spaces, SPACE_ID, and the variables of OAuth",
        found=f"without {', '.join(missing_variables)}" if missing_variables else "another machine",
        fix="write `hf_oauth: true` into the README of the Space; elsewhere use `resumerge ui`",
    )
