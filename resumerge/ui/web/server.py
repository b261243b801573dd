"""The server of the page, which runs until a signal ends the process."""

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
"""The seconds for answers in progress when the server ends. Those to an open page never end."""

EXTRA = "pip install 'resumerge[ui]'"


def serve(folder: Path, host: str, port: int, listening: Callable[[str], None]) -> None:
    """Serve the page that merges in a folder, until a signal ends the process.

    Args:
        folder: the folder with the models, which exists; outputs and the ledgers are written to it.
        host: the address of this machine to listen at.
        port: the port; 0 for any free port.
        listening: called with the page's address.

    Raises:
        InputError: Gradio is not installed, there is no such folder, or the port is in use.
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
    """Check that the page can be built, and turn off Gradio's analytics.

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
    """Answer requests until a signal ends this process. Requests of other origins are refused.

    Args:
        app: the ASGI application of the page, as `app_of` returns it.
        listener: the socket that browsers connect to.
        host: the address of the socket.
        listening: called with the page's address.
        names: host names of the page in browsers, besides the host in a request.
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
    """Return a listening socket, which browsers can connect to at once.

    Args:
        host: the address of this machine.
        port: the port; 0 for any free port.

    Raises:
        InputError: the address cannot be used, for example because the port is in use.
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
