"""The comparison of a model with the run that reproduced it."""

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
    """The comparison of a reproduced model with the original.

    Args:
        original: the original, with its version.
        output: the path of the model that was made again.
        run: the id of the run that reproduced the model.
        tensors: the number of compared tensors.
        nbytes: the compared bytes of weights.
        files: the number of other files that were compared.
        differing: a text on the difference of each tensor or file that differs, by its name.
        reasons: sentences on source models whose content has changed or is unknown. Such models may
            explain a difference, and make an identical result a weaker proof.
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
        """Whether all compared tensors and files are the same."""
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
    """Compare an original, byte for byte, with the output of the run that reproduced it.

    The model card is not compared: it contains the name of its folder, and people edit it.

    Args:
        context: its state folder must hold the run of `out`; its reporter is given the progress.
        original: the original, whose files are read again for this comparison.
        out: the output of the finished run, by which its ledger is found.

    Raises:
        InputError: no run has this output.
        Resumable: a file of either model cannot be read now.
    """
    run_folder = context.runs.find(str(out))
    with closing(read_ledger(run_folder)) as ledger:
        output_folder = OutputPath(out).folder
        differing: dict[str, str] = {}
        tensors = nbytes = bytes_read = 0
        shards = ledger.shards.all()
        total_bytes = sum(shard["nbytes"] for shard in shards)
        context.reporter.doing("comparing with the original")
        for shard in shards:
            unit_rows = ledger.units.all(shard["number"])
            shard_path = output_folder / shard["name"]
            differing |= original.files.compare(shard, unit_rows, shard_path, context.stop.check)
            tensors += len(unit_rows)
            nbytes += sum(row["nbytes"] for row in unit_rows)
            bytes_read += shard["nbytes"]
            context.reporter.reading(bytes_read, total_bytes)
        companion_names = [name for name in ledger.companions.checksums() if name != CARD]
        differing |= {
            name: text
            for name in companion_names
            if (text := _difference(original, output_folder, name))
        }
        return Reproduction(
            original.files.where,
            str(out),
            run_folder.name,
            tensors,
            nbytes,
            len(companion_names),
            differing,
            tuple(_reasons(original, ledger)),
        )


def _difference(original: Original, folder: Path, name: str) -> str:
    """Compare a companion with the original's; return a text on the difference, or ""."""
    try:
        original_bytes = original.files.read(name)
    except FileNotFoundError:
        return "the original has no such file"
    except UnfitFile as error:
        return str(error)
    return "" if original_bytes == (folder / name).read_bytes() else "the file differs"


def _reasons(original: Original, ledger: Ledger) -> Iterator[str]:
    """Yield a sentence for each source model whose content changed, or is not in the card."""
    source_rows = {row["model"]: row for row in ledger.sources()}
    for model, pin in original.provenance.models.items():
        content_here = (source_rows.get(model) or {}).get("content")
        if not pin:
            yield f"{model}: the card does not say what was read of it"
        elif not pin.get("revision") and content_here != (content_before := pin.get("content")):
            yield (
                f"{model} is another: its content was {content_before}, and is {content_here} here"
            )


def refuse_itself(original: Original, out: Path) -> None:
    """Refuse an output that is the folder of the original.

    Raises:
        InputError: output and original are the same folder.
    """
    if original.files.where == str(out.absolute()):
        raise refuse(
            "A model is made again beside the original, not in its place",
            where=out,
            expected="another folder",
            fix=f"name a new one, like {out}-again",
        )
