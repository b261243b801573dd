"""Fixtures of the tests of mirrors."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from finished_runs import Bed
from loopback_s3 import Bucket, Server, start
from machines import SHARD_SIZE, Machine, files_of
from made_up_mirrors import RECIPE as COPIES
from merging import merge
from mirrored import Bench
from tiny_models import LLAMA, TWO_LAYERS, write_family


@pytest.fixture(scope="session")
def small_models(workplace: Path) -> Path:
    """Make the models `base`, `math` and `code`, with 21 tensors each."""
    return write_family(workplace / "mirrored models", TWO_LAYERS)


@pytest.fixture(scope="session")
def bench(workplace: Path, small_models: Path) -> Iterator[Bench]:
    """Yield a bench whose merges have four shards."""
    bench = Bench(workplace / "mirrored", small_models)
    yield bench
    bench.close()


@pytest.fixture(scope="session")
def reference(bench: Bench) -> dict[str, bytes]:
    """Return the files of a merge without a mirror, which nothing disturbs."""
    merge = bench.merge()
    merge.options["mirror"] = None
    ended = merge.run()
    assert ended.code == 0, ended.stderr
    return merge.model()


@pytest.fixture(scope="module")
def store(workplace: Path) -> Iterator[Path]:
    """Yield a folder that the tests of a module share."""
    with tempfile.TemporaryDirectory(dir=workplace) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def models(store: Path) -> Path:
    """Make the models `base`, `math` and `code`, with 39 tensors each."""
    return write_family(store / "models", LLAMA)


@pytest.fixture(scope="module")
def reference_of_machines(store: Path, models: Path) -> dict[str, bytes]:
    """Return the model of a machine without a mirror, which nothing interrupts."""
    machine = Machine(store / "calm", models)
    machine.call("run", "recipe.yaml", "merged", "--shard-size", SHARD_SIZE)
    assert len(list(machine.out.glob("*.safetensors"))) >= 5
    return files_of(machine.out)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with models, an output of some shards and its ledger."""
    folder = tmp_path_factory.mktemp("made")
    write_family(folder / "models", {**LLAMA, "num_hidden_layers": 2})
    merge(folder / "models", COPIES, folder / "merged", shard_size=8000)
    return folder


@pytest.fixture
def there(made: Path, tmp_path: Path) -> Path:
    """Make a mirror with all shards of an unfinished run, and no ledger yet."""
    mirror = tmp_path / "mirror"
    (mirror / ".resumerge").mkdir(parents=True)
    for shard in (made / "merged").glob("*.safetensors"):
        shutil.copy(shard, mirror)
    return mirror


@pytest.fixture(scope="module")
def finished(made: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Bed, Path]:
    """Make a machine whose run is finished, and a copy of everything that it has."""
    folder = tmp_path_factory.mktemp("finished")
    bed = Bed(folder / "bed", made / "models")
    bed.run()
    shutil.copytree(folder / "bed", folder / "kept", symlinks=True)
    return bed, folder / "kept"


@pytest.fixture
def bed(finished: tuple[Bed, Path]) -> Bed:
    """Return the machine, as it was when its run was finished."""
    bed, kept = finished
    shutil.rmtree(bed.mirror.parent)
    shutil.copytree(kept, bed.mirror.parent, symlinks=True)
    return bed


@pytest.fixture(scope="session")
def s3() -> Iterator[Server]:
    """Yield a server that speaks the protocol of S3."""
    with start("moto") as server:
        yield server


@pytest.fixture
def bucket(s3: Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """Return a bucket, to which this process's environment leads."""
    for name, value in s3.env().items():
        monkeypatch.setenv(name, value)
    return Bucket(s3.env())
