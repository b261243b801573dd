"""Ranks by the share of each change that is kept, or by the length of singular values."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapter_runs import check_a_kill, run
from merging import shards_of, working_in
from safetensors.numpy import load_file
from tiny_models import LLAMA, write_family
from waiting import wait_until

import resumerge
from resumerge.engine.lifecycle import attempt, compaction
from resumerge.engine.lifecycle.session import Session
from resumerge.engine.shards import sealing
from resumerge.errors import InputError
from resumerge.ledger import Ledger
from resumerge.ledger.units import Units
from resumerge.options import Options
from resumerge.recipe import parse_recipe
from resumerge.storage import Storage
from resumerge.tensors import Factors

RECIPE = """\
extract_lora: {model: math, max_rank: 12, energy: 0.8, exclude: ['layers.3']}
base_model: base
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write_family(tmp_path, LLAMA)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    return tmp_path


def singular_values(folder: Path) -> dict[str, np.ndarray]:
    """Return the singular values of each matrix's change, without those of the excluded layer."""
    base, tuned = (load_file(folder / name / "model.safetensors") for name in ("base", "math"))
    return {
        name.removesuffix(".weight"): np.linalg.svd(
            tuned[name].astype(float) - base[name], compute_uv=False
        )
        for name in base
        if "_proj" in name and "layers.3" not in name
    }


def ranks_in(out: Path) -> dict[str, int]:
    """Return the rank of each module by its matrices, and check that the config says the same."""
    config = json.loads((out / "adapter_config.json").read_text())
    tensors = load_file(out / "adapter_model.safetensors")
    ranks = {}
    for name, tensor in tensors.items():
        if ".lora_A." in name:
            module = name.removeprefix("base_model.model.").partition(".lora_A")[0]
            ranks[module] = len(tensor)
            assert tensors[name.replace("lora_A", "lora_B")].shape[1] == len(tensor)
            assert config["rank_pattern"].get(module, config["r"]) == len(tensor)
    assert config["alpha_pattern"] == config["rank_pattern"]
    assert config["r"] == config["lora_alpha"] == max(ranks.values())
    return ranks


def test_the_fewest_directions_that_keep_the_share(models: Path) -> None:
    out = run(models, "out")
    wanted = {}
    for name, values in singular_values(models).items():
        shares = np.cumsum(values**2) / np.sum(values**2)
        wanted[name] = min(12, int(np.argmax(shares >= 0.8)) + 1)
    assert ranks_in(out) == wanted
    assert len(set(wanted.values())) > 2
    [told] = resumerge.status(out, state_dir=models / "out.state")["runs"]
    for row in told["extraction"]["modules"]:
        assert row["kept"] >= 0.8 or wanted[row["module"]] == 12
    data = (out / "adapter_model.safetensors").read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    assert told["bytes"] == dict.fromkeys(["total", "committed"], len(data) - head)
    for name, rank in wanted.items():
        assert f"| {rank} |" in next(
            line for line in (out / "README.md").read_text().splitlines() if f"| {name} " in line
        )


def test_directions_up_to_a_length_are_left_out(models: Path) -> None:
    values = singular_values(models)
    epsilon = float(np.mean([own[5] for own in values.values()]))
    text = RECIPE.replace("energy: 0.8", f"sv_epsilon: {epsilon}")
    (models / "recipe.yaml").write_text(text)
    wanted = {name: min(12, int(np.sum(own > epsilon))) for name, own in values.items()}
    assert ranks_in(run(models, "out")) == wanted
    assert len(set(wanted.values())) > 2


def test_what_is_left_is_the_leading_part_of_the_highest_rank(models: Path) -> None:
    out = run(models, "out")
    (models / "recipe.yaml").write_text(RECIPE.replace(", energy: 0.8", ""))
    whole = load_file(run(models, "whole") / "adapter_model.safetensors")
    for name, tensor in load_file(out / "adapter_model.safetensors").items():
        kept = [slice(extent) for extent in tensor.shape]
        part = whole[name][tuple(kept)]
        assert np.array_equal(tensor, part), name


def test_where_every_direction_is_kept_the_file_is_that_of_the_highest_rank(models: Path) -> None:
    (models / "recipe.yaml").write_text(RECIPE.replace("energy: 0.8", "energy: 1"))
    out = run(models, "out")
    with working_in(models):
        Session(Options(state_dir=Path("out.state"))).resume("out")
    (models / "recipe.yaml").write_text(RECIPE.replace(", energy: 0.8", ""))
    assert shards_of(out) == shards_of(run(models, "whole"))


@pytest.mark.parametrize("computed", [1, 9, 20])
def test_killed_while_modules_are_computed(
    computed: int, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_a_kill(models, Factors, computed, monkeypatch)


def _at_write(patch: pytest.MonkeyPatch) -> None:
    _kill_at(patch, compaction, "hash_block", 7)


def _before_the_ledger(patch: pytest.MonkeyPatch) -> None:
    _kill_at(patch, Units, "replace_layout", 1)


def _before_the_old_name(patch: pytest.MonkeyPatch) -> None:
    laid_out = Units.replace_layout

    def lay_out(*words: Any, **more: Any) -> None:
        laid_out(*words, **more)
        _kill_at(patch, Storage, "rename", 1)

    patch.setattr(Units, "replace_layout", lay_out)


def _before_sealing(patch: pytest.MonkeyPatch) -> None:
    _kill_at(patch, compaction, "seal", 1)


def _after_renaming(patch: pytest.MonkeyPatch) -> None:
    _kill_at(patch, sealing, "record_sealed", 1)


def _before_the_manifest(patch: pytest.MonkeyPatch) -> None:
    _kill_at(patch, attempt, "model_files", 1)


def _killed(
    place: Callable[[pytest.MonkeyPatch], None],
    work: Callable[[], Any],
    patch: pytest.MonkeyPatch,
) -> None:
    """Do some work in another process, which is killed at a place in it."""
    if (child := os.fork()) == 0:
        place(patch)
        try:
            work()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL


def _kill_at(
    patch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    number: int,
    once: Callable[[], object] = lambda: True,
) -> None:
    """Have this process killed as it makes the call with this number, once something is true."""
    function, count = getattr(where, name), 0

    def counted(*words: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == number:
            wait_until(once)
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*words, **more)

    patch.setattr(where, name, counted)


@pytest.mark.parametrize(
    "place", [_at_write, _before_the_ledger, _before_the_old_name, _before_sealing, _after_renaming]
)
def test_killed_while_directions_are_left_out(
    place: Callable[[pytest.MonkeyPatch], None], models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = run(models, "whole")
    _killed(place, lambda: run(models, "killed"), monkeypatch)
    with working_in(models):
        [told] = resumerge.status("killed", state_dir="killed.state")["runs"]
        assert told["state"] != "done"
        counted = _computed(models, "killed", monkeypatch)
    assert counted == 0, "modules were computed again"
    assert shards_of(models / "killed") == shards_of(whole)
    assert {path.name for path in (models / "killed").iterdir()} == {
        path.name for path in whole.iterdir()
    }
    assert ranks_in(models / "killed") == ranks_in(whole)


def _computed(folder: Path, out: str, patch: pytest.MonkeyPatch) -> int:
    """Resume a run, and return how many modules it computes."""
    compute, count = Factors.compute, 0

    def counted(*words: Any) -> Any:
        nonlocal count
        count += 1
        return compute(*words)

    with patch.context() as inside:
        inside.setattr(Factors, "compute", counted)
        Session(Options(state_dir=folder / f"{out}.state")).resume(str(folder / out))
    return count


def test_a_damaged_module_is_computed_again_at_its_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Passes decompose a large matrix; its directions depend on how many are computed."""
    models = tmp_path
    write_family(models, {**LLAMA, "hidden_size": 384, "intermediate_size": 400})
    (models / "recipe.yaml").write_text(
        RECIPE.replace("exclude: ['layers.3']", "include: [up_proj]").replace("0.8", "0.05")
    )
    out = run(models, "out")
    assert 1 < max(ranks_in(out).values()) < 12
    before = shards_of(out)
    file = out / "adapter_model.safetensors"
    data = bytearray(file.read_bytes())
    head = int.from_bytes(data[:8], "little")
    name = "base_model.model.model.layers.1.mlp.up_proj.lora_B.weight"
    data[8 + head + json.loads(data[8 : 8 + head])[name]["data_offsets"][0]] ^= 0xFF
    file.write_bytes(data)
    with working_in(models):
        found = resumerge.verify("out", state_dir="out.state")
        assert len(found.damaged) == 1
    assert _computed(models, "out", monkeypatch) == 1
    assert shards_of(out) == before
    with working_in(models):
        assert resumerge.verify("out", state_dir="out.state", sources=True).damaged == {}


def test_the_ledger_is_sound_and_says_when_the_ranks_were_chosen(models: Path) -> None:
    run(models, "out")
    [path] = (models / "out.state").glob("*/ledger.db")
    with closing(Ledger(path)) as ledger:
        ledger.check()
        [event] = [e for e in ledger.events.all() if e["kind"] == "ranks_chosen"]
        assert event["data"]["modules"] == 21
        assert 1 <= event["data"]["least"] < event["data"]["most"] <= 12


def test_the_number_of_threads_changes_no_bit(models: Path) -> None:
    assert shards_of(run(models, "one", threads=1)) == shards_of(run(models, "two", threads=3))


def test_it_is_made_again_from_its_card(models: Path) -> None:
    out = run(models, "out")
    with working_in(models):
        assert resumerge.reproduce("out", "again", state_dir="out.state").identical
    assert shards_of(models / "again") == shards_of(out)


def test_a_mirror_has_the_smaller_file_alone(models: Path) -> None:
    out = run(models, "out", mirror=str(models / "mirror"))
    assert shards_of(models / "mirror") == shards_of(out)
    shutil.rmtree(out)
    shutil.rmtree(models / "out.state")
    back = run(models, "out", mirror=str(models / "mirror"), bring_back=True)
    assert ranks_in(back) == ranks_in(models / "mirror")


@pytest.mark.parametrize("energy", ["0.8", "1"])
def test_another_machine_goes_on_from_the_mirror(
    energy: str, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second machine is killed before it writes the manifest, and the first one continues."""

    (models / "recipe.yaml").write_text(RECIPE.replace("0.8", energy))
    whole, mirror = run(models, "whole"), str(models / "mirror")

    def elsewhere() -> None:
        with working_in(models):
            options = Options(state_dir=Path("there.state"), output=Path("there"))
            Session(options).resume(mirror)

    def once_mirrored(patch: pytest.MonkeyPatch) -> None:
        _kill_at(patch, Factors, "compute", 12, lambda: [*Path(mirror).rglob("ledger-*.db")])

    _killed(once_mirrored, lambda: run(models, "out", mirror=mirror), monkeypatch)
    _killed(_before_the_manifest, elsewhere, monkeypatch)
    with working_in(models):
        Session(Options(state_dir=Path("out.state"))).resume("out")
    assert shards_of(models / "mirror") == shards_of(whole)
    if energy == "0.8":  # else what the mirror has is taken over, and stays there
        assert shards_of(models / "out") == shards_of(whole)
    [path] = (models / "out.state").glob("*/ledger.db")
    with closing(Ledger(path)) as ledger:
        ledger.check()


def test_plan_says_that_the_ranks_are_not_known(models: Path) -> None:
    with working_in(models):
        told = resumerge.plan("recipe.yaml")
    assert any("the ranks are known once" in note for note in told["notes"])


@pytest.mark.parametrize("wrong", ["0", "1.5", "-1", "true", "half"])
def test_a_share_is_above_0_and_at_most_1(wrong: str) -> None:
    with pytest.raises(InputError) as refused:
        parse_recipe(RECIPE.replace("0.8", wrong))
    [problem] = refused.value.problems
    assert problem.path == "extract_lora.energy"


def test_a_cluster_does_not_choose_ranks(models: Path) -> None:
    with working_in(models), pytest.raises(InputError, match="ranks its changes choose"):
        run(models, "out", ray="local")
    assert not (models / "out").exists()
