"""Serves the page, until a signal ends it."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Collection
from importlib.util import find_spec
from pathlib import Path

from resumerge.errors import refuse
from resumerge.ui.web.same_origin import Application, SameOrigin
from resumerge.ui.web.settings import settings
from resumerge.ui.web.workspace import Workspace

GRACE_SECONDS = 1
"""The seconds for answers under way when the server ends; an open page would wait for ever."""

EXTRA = "pip install 'resumerge[ui]'"


def serve(folder: Path, host: str, port: int, listening: Callable[[str], None]) -> None:
    """Serve the page that merges in a folder.

    Args:
        folder: the folder.
        host: the address of this machine to listen at.
        port: the port; 0 for one that is free.
        listening: is called with the page's address.

    Raises:
        InputError: Gradio is not installed, there is no such folder, or the port is taken.
    """
    check_gradio()
    try:
        os.scandir(folder).close()
    except OSError as error:
        raise refuse(
            "This cannot be the page's folder",
            where=folder,
            expected="the folder with the models, which may be empty",
            found=error.strerror,
        ) from None
    with listen(host, port) as listener:
        from resumerge.ui.web.page import app_of, build

        workspace = Workspace(folder)
        heading = f"# resumerge\nModels and outputs are in `{workspace.folder}`."
        app = app_of(build(lambda request: workspace, settings(), heading))
        run_app(app, listener, host, listening)


def check_gradio() -> None:
    """Check that the page can be built. Nothing of it calls home from here on.

    Raises:
        InputError: Gradio is not installed.
    """
    if find_spec("gradio") is None:
        raise refuse("The page needs Gradio, which is not installed", fix=EXTRA)
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # before Gradio reads it


def run_app(
    app: Application,
    listener: socket.socket,
    host: str,
    listening: Callable[[str], None],
    names: Collection[str] = (),
) -> None:
    """Answer requests, but those of other pages, until a signal ends this process.

    Args:
        app: the application.
        listener: the socket that browsers connect to.
        host: the address that it listens at.
        listening: is called with the page's address.
        names: of hosts by which browsers know the page, beside those of their requests.
    """
    import uvicorn

    config = uvicorn.Config(
        SameOrigin(app, names),
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    name = f"[{host}]" if ":" in host else host
    listening(f"http://{name}:{listener.getsockname()[1]}/")
    uvicorn.Server(config).run(sockets=[listener])


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that browsers can connect to already.

    Args:
        host: the address of this machine.
        port: the port; 0 for one that is free.

    Raises:
        InputError: the address cannot be listened at.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        raise refuse(
            "The page cannot be served at this address",
            where=f"{host}, port {port}",
            found=error.strerror or str(error),
            fix="name another port with --port; --port 0 takes one that is free",
        ) from None
