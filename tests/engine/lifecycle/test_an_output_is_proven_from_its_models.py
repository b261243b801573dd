"""Promise: `verify(sources=True)` computes blocks again from the pinned models of a run.

It names the tensors that they do not give, and the model that may be the reason. It writes nothing.
"""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest
import stage_recipes
from ledger_rows import change, query
from merging import merge, working_in
from tiny_models import TWO_LAYERS, write_family

import resumerge
from resumerge.cli.main import main
from resumerge.engine.lifecycle import recomputation
from resumerge.engine.recovery.verification import Recomputation
from resumerge.engine.shards.checksums import unit_checksum
from resumerge.errors import InputError
from resumerge.kernels.hashes import hash_block
from resumerge.ledger import LEDGER_FILE
from resumerge.ui.notebook.results import DisplayedVerification

LINEAR = """
merge_method: linear
models:
  - {model: math, parameters: {weight: 0.6}}
  - {model: code, parameters: {weight: 0.4}}
dtype: bfloat16
"""
TIES = LINEAR.replace("linear", "ties").replace("0.4}", "0.4, density: 0.5}") + "base_model: base\n"
DARE = TIES.replace("ties", "dare_ties")
SLERP = """
merge_method: slerp
base_model: math
models: [{model: code}]
parameters: {t: 0.3}
"""
COPY = """
merge_method: passthrough
slices:
  - sources: [{model: math, layer_range: [0, 2]}]
  - sources: [{model: code, layer_range: [0, 2]}]
"""
RECIPES = {"linear": LINEAR, "ties": TIES, "dare": DARE, "slerp": SLERP, "copy": COPY}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_family(tmp_path_factory.mktemp("models"), TWO_LAYERS)


@pytest.fixture
def family(models: Path, tmp_path: Path) -> Path:
    """Copy the models, so that a test can change them."""
    return Path(shutil.copytree(models, tmp_path / "models"))


def state_of(out: Path) -> Path:
    return out.with_name(out.name + ".state")


def ledger_of(out: Path) -> Path:
    [ledger] = state_of(out).glob(f"*/{LEDGER_FILE}")
    return ledger


def verify(models: Path, out: Path, **options: bool) -> Recomputation:
    with working_in(models):
        found = resumerge.verify(out, sources=True, state_dir=state_of(out), **options)
    assert found.intact and found.recomputed is not None
    return found.recomputed


@pytest.mark.parametrize("method", RECIPES)
def test_every_block_of_a_merge_is_the_same_again(
    models: Path, method: str, tmp_path: Path
) -> None:
    out = merge(models, RECIPES[method], tmp_path / "out")
    before = ledger_of(out).read_bytes()
    found = verify(models, out, all=True)
    [blocks] = query(ledger_of(out), "SELECT sum(blocks) AS n, sum(nbytes) AS bytes FROM units")
    assert (found.blocks, found.nbytes) == (blocks["n"], blocks["bytes"])
    assert found.committed == found.blocks and not found.differing and found.seed is None
    assert ledger_of(out).read_bytes() == before


@pytest.mark.parametrize("stages", ["three in a row", "ties of ties"])
def test_stages_are_computed_through(stages: str, tmp_path: Path) -> None:
    models = stage_recipes.write_models(tmp_path / "models")
    out = merge(models, stage_recipes.RECIPES[stages], tmp_path / "out", keep=["first"])
    assert not verify(models, out, all=True).differing


def test_a_model_that_changed_is_named_with_the_tensors_that_it_changed(
    family: Path, tmp_path: Path
) -> None:
    out = merge(family, TIES, tmp_path / "out")
    file = family / "code" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-4:] = b"\x00\x00\x80\x3f"
    file.write_bytes(data)
    found = verify(family, out, all=True)
    assert len(found.differing) == 1 and found.changed == (str(file),)
    with working_in(family):
        words = ["verify", str(out), "--state-dir", str(state_of(out)), "--sources", "--all"]
        assert exit_code(words) == 2
        assert exit_code(words[:-2]) == 0, "the output has the bytes that were computed"


def exit_code(words: list[str]) -> int:
    with pytest.MonkeyPatch.context() as patched, pytest.raises(SystemExit) as ended:
        patched.setattr("sys.argv", ["resumerge", *words])
        main()
    return int(ended.value.code or 0)


def test_a_ledger_and_an_output_that_were_changed_together_are_not_proven(
    models: Path, tmp_path: Path
) -> None:
    """The output agrees with its ledger, so only the models reveal the change."""
    out = merge(models, LINEAR, tmp_path / "out")
    [unit] = query(ledger_of(out), "SELECT * FROM units WHERE blocks = 1 LIMIT 1")
    [shard] = out.glob("*.safetensors")
    data = bytearray(shard.read_bytes())
    data[unit["offset"]] ^= 1
    shard.write_bytes(data)
    found = hash_block(bytes(data[unit["offset"] :][: unit["nbytes"]]))
    values = (found, unit_checksum(found), unit["number"])
    change(ledger_of(out), "UPDATE units SET block_hashes=?, checksum=? WHERE number=?", values)
    again = verify(models, out, all=True)
    assert again.differing == {unit["name"]: 0} and not again.changed
    with working_in(models):
        shown = resumerge.verify(out, sources=True, all=True, state_dir=state_of(out))
    assert isinstance(shown, DisplayedVerification)
    assert "tensors that differ: 1" in shown._repr_html_()
    assert shown.as_json()["sources"]["differing"] == [{"name": unit["name"], "block": 0}]


def test_a_sample_has_so_many_blocks_and_another_seed_other_ones(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = merge(models, LINEAR, tmp_path / "out")
    monkeypatch.setattr(recomputation, "SAMPLED", 5)
    drawn = set()
    for _ in range(4):
        found = verify(models, out)
        assert found.blocks == 5 < found.committed and found.seed is not None
        drawn.add((found.seed, found.nbytes))
    assert len({seed for seed, _ in drawn}) == 4


def test_another_meaning_of_the_arithmetic_is_refused(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = merge(models, LINEAR, tmp_path / "out")
    module = importlib.import_module("resumerge.planning.fingerprint")
    monkeypatch.setattr(module, "NUMERICS", 999)
    with pytest.raises(InputError, match="The program has changed since the run was created"):
        verify(models, out)


def test_only_a_run_of_this_machine_has_models_to_compare_with(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Only a run of this machine"):
        resumerge.verify("s3://bucket/place", sources=True, state_dir=tmp_path)


def test_all_of_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="all says how much sources compares"):
        resumerge.verify(all=True, state_dir=tmp_path)
