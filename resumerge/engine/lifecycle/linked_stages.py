"""Name the stages of a finished run in a folder of the user's."""

from __future__ import annotations

import json
from pathlib import Path

from resumerge.engine.checks.linked_stages import leads_to, links_of
from resumerge.engine.context import RunContext
from resumerge.ledger import Ledger
from resumerge.planning import Plan


def link_stages(context: RunContext, plan: Plan, ledger: Ledger, out: Path) -> None:
    """Make the links, if the run began with a folder for them; what prevents one is noted."""
    row = ledger.run()
    folder = json.loads(row["options"]).get("intermediate_dir") if row else None
    for link, stage in links_of(Path(folder), plan, out) if folder else ():
        try:
            context.storage.make_folder(link.parent)
            if not leads_to(link, stage):
                context.storage.link(stage, link)
        except OSError as error:
            context.reporter.note(f"{link} is not there ({error}): the stage is in {stage}")
