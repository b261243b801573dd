"""Links to kept stages, in a folder of the user's (the intermediate folder of mergekit-multi).

The stages themselves are in the output folder, which belongs to one run and can be mirrored.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from resumerge.engine.context import RunContext
from resumerge.errors import Problem
from resumerge.ledger import Ledger
from resumerge.planning import Plan
from resumerge.planning.written.models import stage_folder


def problems_of_links(folder: Path, plan: Plan, out: Path) -> Iterator[Problem]:
    """Yield a problem for each existing file with a link's name, since files are never replaced."""
    for link, stage in _links_of(folder, plan, out):
        if not _leads_to(link, stage) and (link.is_symlink() or link.exists()):
            yield Problem(
                f"The stage {link.name!r} cannot be named here: something has the name already",
                where=str(link),
                expected="no such file or folder, or the link that leads into this output",
                found=f"a link to {link.readlink()}" if link.is_symlink() else _kind(link),
                fix="move it away, or name another folder with --intermediate-dir",
            )


def link_stages(context: RunContext, plan: Plan, ledger: Ledger, out: Path) -> None:
    """Create the links, if the run has a folder for them; report links that cannot be created."""
    links_folder = json.loads(ledger.run()["options"]).get("intermediate_dir")
    for link, stage in _links_of(Path(links_folder), plan, out) if links_folder else ():
        try:
            context.storage.make_folder(link.parent)
            if not _leads_to(link, stage):
                context.storage.link(stage, link)
        except OSError as error:
            context.reporter.note(f"{link} is not there ({error}): the stage is in {stage}")


def _links_of(folder: Path, plan: Plan, out: Path) -> Iterator[tuple[Path, Path]]:
    """Yield (path of the link, folder of the stage) for every kept stage."""
    for stage in plan.stages:
        if stage.recipe.name in plan.kept:
            yield folder.absolute() / stage.recipe.name, out.absolute() / stage_folder(stage)


def _leads_to(link: Path, stage: Path) -> bool:
    """Return whether a path is a link to a stage's folder, or the folder itself."""
    return link.resolve() == stage.resolve()


def _kind(path: Path) -> str:
    return "a folder" if path.is_dir() else "a file"
