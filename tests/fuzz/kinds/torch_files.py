"""Torch checkpoints: zip archives, and the older sequences of pickles."""

from __future__ import annotations

import io
import pickletools
import zipfile
from pathlib import Path
from random import Random

import torch

from fuzz import tiny_files
from fuzz.changes.files import put_something
from fuzz.changes.raw import changed_bytes
from fuzz.kinds.base import Commands, Kind, continues, merges
from fuzz.runs import HALF, make_unfinished

FILE = "pytorch_model.bin"
_TURNED = "model.layers.0.mlp.up_proj.weight"


class TorchFiles(Kind):
    """A base, a model in an archive and one in a sequence of pickles; one of the two is changed."""

    def make(self, work: Path) -> None:
        for seed, name in enumerate(("zipped", "legacy", "base")):
            files = tiny_files.model_files(seed)
            del files["model.safetensors"]
            tiny_files.write(work / name, files)
            state = {
                name: torch.tensor(tiny_files.numbers(shape, (seed, name))).reshape(shape)
                for name, shape in tiny_files.shapes().items()
            }
            state[_TURNED] = state[_TURNED].t()
            zipped = name != "legacy"
            torch.save(state, work / name / FILE, _use_new_zipfile_serialization=zipped)
        for name in ("zipped", "legacy"):
            (work / f"{name}.yaml").write_text(
                "merge_method: linear\nparameters: {weight: 1}\n"
                f"models: [{{model: ./base}}, {{model: ./{name}}}]\n"
            )
        make_unfinished("zipped.yaml")

    def change(self, draw: Random, work: Path) -> Path:
        self._name = draw.choice(("zipped", "legacy"))
        path = work / self._name / FILE
        change = _changed_archive if self._name == "zipped" else _changed_pickles
        put_something(draw, path, lambda: change(draw, path.read_bytes()))
        return path

    def commands(self, draw: Random) -> Commands:
        if self._name == "zipped" and draw.random() < 0.2:
            return continues(draw, HALF)
        return merges(draw, f"{self._name}.yaml")


def _changed_archive(draw: Random, data: bytes) -> bytes:
    if draw.random() < 0.4:
        return changed_bytes(draw, data)
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as before, zipfile.ZipFile(target, "w") as after:
        for name in before.namelist():
            inside = before.read(name)
            if name.endswith("data.pkl"):
                inside = _changed_pickle(draw, inside)
            elif draw.random() < 0.02:
                inside = changed_bytes(draw, inside)
            if draw.random() < 0.99:
                how = zipfile.ZIP_DEFLATED if draw.random() < 0.02 else zipfile.ZIP_STORED
                after.writestr(name, inside, compress_type=how)
    return target.getvalue()


def _changed_pickles(draw: Random, data: bytes) -> bytes:
    if draw.random() < 0.4:
        return changed_bytes(draw, data)
    stream = io.BytesIO(data)
    pickles = []
    for _ in range(5):  # magic, version, system, the dictionary, keys of the storages
        start = stream.tell()
        for _ in pickletools.genops(stream):
            pass
        pickles.append(data[start : stream.tell()])
    number = draw.choice((0, 1, 2, 3, 3, 3, 3, 4))
    pickles[number] = _changed_pickle(draw, pickles[number])
    return b"".join(pickles) + data[stream.tell() :]


def _changed_pickle(draw: Random, data: bytes) -> bytes:
    """Return a pickle with other instructions, or with other arguments of these."""
    starts = [place for _, _, place in pickletools.genops(data) if place is not None]
    steps = [data[start:stop] for start, stop in zip(starts, [*starts[1:], len(data)], strict=True)]
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(steps))
        match draw.randrange(5):
            case 0:
                del steps[at]
            case 1:
                steps.insert(at, draw.choice(steps))
            case 2:
                other = draw.randrange(len(steps))
                steps[at], steps[other] = steps[other], steps[at]
            case 3:
                steps[at] = steps[at][:1] + changed_bytes(draw, steps[at][1:])
            case _:
                code = draw.choice(pickletools.opcodes).code.encode("latin-1")
                steps.insert(at, code + draw.randbytes(draw.choice((0, 1, 4, 8))))
        if not steps:
            break
    return b"".join(steps)
