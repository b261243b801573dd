"""The comparison of a model with the run that made it again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from resumerge.engine.context import RunContext
from resumerge.engine.recovery.open_ledger import read_ledger
from resumerge.engine.reproduction.original import Original
from resumerge.errors import refuse
from resumerge.foreign_files import UnfitFile
from resumerge.ledger import Ledger
from resumerge.output_path import CARD, OutputPath


@dataclass(frozen=True)
class Reproduction:
    """A model that was made again, compared with the original.

    Args:
        original: the original, with its version.
        output: the model that was made again.
        run: the id of the run that made it.
        tensors: the number of tensors that were compared.
        nbytes: bytes of weights that were compared.
        files: the number of other files that were compared.
        differing: what is different, by the name of a tensor or a file.
        reasons: sentences that may explain a difference, or that nobody should take for a proof.
    """

    original: str
    output: str
    run: str
    tensors: int
    nbytes: int
    files: int
    differing: dict[str, str]
    reasons: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Whether all that was compared is the same."""
        return not self.differing

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``reproduce --json``."""
        return {
            "original": self.original,
            "output": self.output,
            "run": self.run,
            "identical": self.identical,
            "tensors": self.tensors,
            "bytes": self.nbytes,
            "files": self.files,
            "differing": [{"name": n, "found": found} for n, found in self.differing.items()],
            "reasons": list(self.reasons),
        }


def compare_with_original(context: RunContext, original: Original, out: Path) -> Reproduction:
    """Compare an original with what a run of this machine has made again, byte for byte.

    The model card is not compared: it has the name of its folder, and people edit it.

    Args:
        context: the command's context.
        original: the original.
        out: the output of the run, which is done.

    Raises:
        InputError: there is no such run.
        Resumable: something cannot be read now.
    """
    folder = context.runs.find(str(out))
    with closing(read_ledger(folder)) as ledger:
        there = OutputPath(out).folder
        differing: dict[str, str] = {}
        tensors = nbytes = done = 0
        shards = ledger.shards.all()
        total = sum(shard["nbytes"] for shard in shards)
        context.reporter.doing("comparing with the original")
        for shard in shards:
            rows = ledger.units.all(shard["number"])
            path = there / shard["name"]
            differing |= original.files.compare(shard, rows, path, context.stop.check)
            tensors, nbytes = tensors + len(rows), nbytes + sum(row["nbytes"] for row in rows)
            done += shard["nbytes"]
            context.reporter.reading(done, total)
        names = [name for name in ledger.companions.checksums() if name != CARD]
        differing |= {name: what for name in names if (what := _other(original, there, name))}
        return Reproduction(
            original.files.where,
            str(out),
            folder.name,
            tensors,
            nbytes,
            len(names),
            differing,
            tuple(_reasons(original, ledger)),
        )


def _other(original: Original, there: Path, name: str) -> str:
    """Return how a file beside the weights differs from the original's; nothing if it does not."""
    try:
        data = original.files.read(name)
    except FileNotFoundError:
        return "the original has no such file"
    except UnfitFile as error:
        return str(error)
    return "" if data == (there / name).read_bytes() else "the file differs"


def _reasons(original: Original, ledger: Ledger) -> Iterator[str]:
    """Yield which models were others, and which are not known."""
    now = {row["model"]: row for row in ledger.sources()}
    for model, pin in original.provenance.models.items():
        content = (now.get(model) or {}).get("content")
        if not pin:
            yield f"{model}: the card does not say what was read of it"
        elif not pin.get("revision") and content != (before := pin.get("content")):
            yield f"{model} is another: its content was {before}, and is {content} here"


def refuse_itself(original: Original, out: Path) -> None:
    """Refuse to make a model again where the original is.

    Raises:
        InputError: both are one folder.
    """
    if original.files.where == str(out.absolute()):
        raise refuse(
            "A model is made again beside the original, not in its place",
            where=out,
            expected="another folder",
            fix=f"name a new one, like {out}-again",
        )
