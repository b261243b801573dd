"""A torch checkpoint that would run something, or that lies, is refused, and nothing is run."""

import io
import tracemalloc
import zipfile
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from malicious_checkpoints import LYING, RUNNING, TENSORS, VALID, archive, legacy, saved, tensor

from resumerge.errors import InputError
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.formats.torch_checkpoint import TorchCheckpoint
from resumerge.tensors import Stored


def opened(folder: Path, content: bytes) -> Source:
    (folder / "pytorch_model.bin").write_bytes(content)
    return open_source(ModelRef(str(folder), str(folder)))


def parse(content: bytes) -> dict[str, Stored]:
    return (
        TorchCheckpoint()
        .read_header(
            lambda start, stop: content[start:stop], size=len(content), file="file", where="file"
        )
        .tensors
    )


def test_the_checkpoint_that_the_others_are_made_from_is_valid(tmp_path: Path) -> None:
    assert opened(tmp_path, VALID).tensors["a"].shape == (2,)
    assert opened(tmp_path, legacy()).tensors == {}


@pytest.mark.parametrize("name", RUNNING)
def test_what_would_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    content, named = RUNNING[name]
    with pytest.raises(InputError) as caught:
        opened(tmp_path, content)
    [problem] = caught.value.problems
    assert problem.where == str(tmp_path / "pytorch_model.bin")
    assert named in problem.found
    assert problem.expected and problem.fix
    assert [file.name for file in tmp_path.iterdir()] == ["pytorch_model.bin"]


@pytest.mark.parametrize("name", LYING)
def test_what_lies(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        opened(tmp_path, LYING[name])
    [problem] = caught.value.problems
    assert problem.where == str(tmp_path / "pytorch_model.bin")
    assert problem.expected and problem.found and problem.fix
    assert len(str(problem)) < 2000


def test_a_pickle_that_would_fill_the_memory(tmp_path: Path) -> None:
    """A pickle of 300 MB, a hole in a sparse file, is refused by its size."""
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("archive/data.pkl", b"")
    whole = path.read_bytes()
    size = (300_000_000).to_bytes(4, "little")
    central = whole.index(b"PK\x01\x02")
    entry = bytearray(whole[central:])
    entry[20:24] = entry[24:28] = size
    entry[-6:-2] = (central + 300_000_000).to_bytes(4, "little")
    with path.open("wb") as file:
        file.write(whole[:central])
        file.truncate(central + 300_000_000)
        file.seek(0, io.SEEK_END)
        file.write(entry)
    with pytest.raises(InputError, match="at most 100000000 bytes"):
        open_source(ModelRef(str(tmp_path), str(tmp_path)))


@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02}r\xff\xff\xff\x0f.",  # LONG_BINPUT: 4 GB of memo in pickle.Unpickler
        b"\x80\x05\x8e" + (1 << 40).to_bytes(8, "little"),  # BINBYTES8
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little"),  # BYTEARRAY8
        b"\x80\x04\x95" + (1 << 40).to_bytes(8, "little"),  # FRAME
        b"\x80\x02X\xff\xff\xff\xff",  # BINUNICODE
    ],
)
def test_indexes_and_lengths_that_a_pickle_claims_take_no_memory(content: bytes) -> None:
    tracemalloc.start()
    with suppress(InputError):
        parse(archive(content))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@given(st.binary(max_size=300))
def test_any_bytes(content: bytes) -> None:
    with suppress(InputError):
        parse(content)


@given(st.binary(max_size=100))
def test_any_bytes_as_pickle(content: bytes) -> None:
    with suppress(InputError):
        parse(archive(content))


@given(
    st.lists(
        st.sampled_from(list(b"\x80\x02}]()tuasbQRcq\x00h\x00K\x01X\x85\x86\x87.")), max_size=40
    )
)
def test_any_instructions_as_pickle(content: list[int]) -> None:
    with suppress(InputError):
        parse(archive(b"\x80\x02" + bytes(content) + b"."))


WHOLE = {zipped: saved(TENSORS, zipped) for zipped in (True, False)}


@settings(max_examples=300)
@given(st.booleans(), st.data())
def test_any_byte_changed(zipped: bool, data: st.DataObject) -> None:
    """A checkpoint with changed bytes is refused, or every tensor lies within the file."""
    content = bytearray(WHOLE[zipped])
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with suppress(InputError):
        for info in parse(bytes(content)).values():
            assert 0 <= info.offset <= info.offset + info.nbytes * (type(info) is Stored)
            assert type(info) is not Stored or info.offset + info.nbytes <= len(content)


@settings(max_examples=200)
@given(st.booleans(), st.data())
def test_any_truncation(zipped: bool, data: st.DataObject) -> None:
    whole = WHOLE[zipped]
    with pytest.raises(InputError):
        parse(whole[: data.draw(st.integers(0, len(whole) - 1))])


def test_nothing_is_looked_up_that_a_pickle_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading a pickle imports no module, not even for a name that it may use."""
    import builtins

    def forbidden(name: str, *rest: object) -> None:
        raise AssertionError(f"import of {name}")

    content = archive(tensor(), {"data/0": bytes(8)})
    parse(content)
    monkeypatch.setattr(builtins, "__import__", forbidden)
    try:
        found = parse(content)
    finally:
        monkeypatch.undo()
    assert found["a"].dtype == "F32"


def test_what_torch_refuses_is_refused_too(tmp_path: Path) -> None:
    """The checkpoints that would run something are refused by torch.load with weights_only, too."""
    for name, (content, _) in RUNNING.items():
        if name in ("tuple_as_key", "state_of_a_tensor", "newobj"):
            continue  # torch reads these, which are harmless to it
        with pytest.raises(Exception):  # noqa: B017
            torch.load(io.BytesIO(content), weights_only=True)
