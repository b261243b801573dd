"""A ``.bin`` checkpoint is read range by range, without torch, and gives what torch.load gives."""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from memory_growth import measure_growth
from merging import merge, tensors_of
from reading import evaluation, read
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family
from torch import Tensor

from resumerge.errors import InputError
from resumerge.recipe import ModelRef
from resumerge.sources import Source, open_source
from resumerge.sources.reader import SourceReader

pytestmark = pytest.mark.cold_start

SHARED = torch.randn(6, 8)
TENSORS: dict[str, Tensor] = {
    "bf16": torch.randn(37, 11).bfloat16(),
    "f16": torch.randn(101).half(),
    "f32": torch.randn(7, 5, 3),
    "f64": torch.randn(64).double(),
    "i64": torch.arange(50),
    "bool": torch.randn(33) > 0,
    "scalar": torch.tensor(1.5),
    "empty": torch.zeros(0, 4),
    "transposed": torch.randn(13, 17).t(),
    "permuted": torch.randn(3, 4, 5).permute(2, 0, 1),
    "every_other": torch.randn(40, 30)[::2, ::3],
    "a_part": torch.randn(40)[7:21],
    "expanded": torch.randn(1, 6).expand(4, 6),
    "shared": SHARED,
    "shared_again": SHARED,
    "rows_of_shared": SHARED[2:4],
    "large_transposed": torch.randn(700, 900).t(),
    "parameter": torch.nn.Parameter(torch.randn(4, 4)),
}
NEWER = {
    "f8": torch.randn(99).to(torch.float8_e4m3fn),
    "f8_wide": torch.randn(99).to(torch.float8_e5m2),
    "u16": torch.arange(9).to(torch.uint16),
}


def saved(folder: Path, tensors: dict[str, Tensor], **options: object) -> Source:
    folder.mkdir(exist_ok=True)
    torch.save(tensors, folder / "pytorch_model.bin", **options)
    return open_source(ModelRef(str(folder), str(folder)))


def compare(source: Source, tensors: dict[str, Tensor]) -> None:
    """Check that each tensor, whole and in some ranges, has the bytes that torch has."""
    chosen = random.Random(0)
    reader = SourceReader([source])
    assert source.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        info = source.tensors[name]
        assert info.shape == tuple(tensor.shape)
        flat = tensor.detach().contiguous().flatten()
        numel = flat.numel()
        ranges = [(0, numel), (numel, numel)]
        ranges += [tuple(sorted(chosen.choices(range(numel + 1), k=2))) for _ in range(20)]
        for start, stop in ranges:
            expected = bytes(flat[start:stop].view(torch.uint8).numpy()) if stop > start else b""
            assert read(evaluation(reader), info, start, stop) == expected, (name, start, stop)
    reader.close()


def test_tensors_and_views_of_every_kind(tmp_path: Path) -> None:
    compare(saved(tmp_path, {**TENSORS, **NEWER}), {**TENSORS, **NEWER})


def test_the_format_from_before_zip_archives(tmp_path: Path) -> None:
    source = saved(tmp_path, TENSORS, _use_new_zipfile_serialization=False)
    compare(source, TENSORS)


def test_a_state_dict_of_a_module_with_its_versions(tmp_path: Path) -> None:
    state = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4)).state_dict()
    compare(saved(tmp_path, state), dict(state))


def test_a_state_dict_inside_of_a_training_checkpoint(tmp_path: Path) -> None:
    compare(saved(tmp_path, {"state_dict": {"a": SHARED}, "epoch": 3}), {"a": SHARED})


def test_shards_with_an_index(tmp_path: Path) -> None:
    parts = [dict(list(TENSORS.items())[:8]), dict(list(TENSORS.items())[8:])]
    weight_map = {}
    for number, part in enumerate(parts):
        file = f"pytorch_model-{number}.bin"
        torch.save(part, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    index = tmp_path / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    compare(open_source(ModelRef(str(tmp_path), str(tmp_path))), TENSORS)
    (tmp_path / "pytorch_model-1.bin").unlink()
    with pytest.raises(InputError, match=r"missing: pytorch_model-1\.bin"):
        open_source(ModelRef(str(tmp_path), str(tmp_path)))


RECIPE = (
    "merge_method: ties\nbase_model: base\nmodels:\n"
    "  - {model: math, parameters: {weight: 0.6, density: 0.5}}\n"
    "  - {model: code, parameters: {weight: 0.4, density: 0.5}}\n"
)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_merge_of_them_has_the_weights_of_a_merge_of_safetensors(
    zipped: bool, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    models = write_family(tmp_path / "models", LLAMA)
    calm = merge(models, RECIPE, tmp_path / "calm")
    for name in ("base", "math", "code"):
        file = models / name / "model.safetensors"
        torch.save(
            load_file(file),
            models / name / "pytorch_model.bin",
            _use_new_zipfile_serialization=zipped,
        )
        file.unlink()
    found, expected = tensors_of(merge(models, RECIPE, tmp_path / "out")), tensors_of(calm)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_changing_it_changes_what_pins_it(tmp_path: Path) -> None:
    before = saved(tmp_path, {"a": torch.ones(4)}).identity()
    after = saved(tmp_path, {"a": torch.ones(5)}).identity()
    assert (
        before["files"]["pytorch_model.bin"]["header"]
        != (after["files"]["pytorch_model.bin"]["header"])
    )


def test_planning_imports_no_torch(tmp_path: Path) -> None:
    tensors = random_tensors(llama_shapes(LLAMA), seed=0)
    saved(tmp_path / "model", tensors)
    config = tmp_path / "recipe.yaml"
    config.write_text("merge_method: passthrough\nmodels: [{model: ./model}]\n")
    script = (
        "import sys; from pathlib import Path;"
        "from resumerge.options import Options;"
        "from resumerge.documents.plan_report import describe_plan;"
        "found = describe_plan(Path('recipe.yaml'), None, Options());"
        "assert found['units'] and not found['problems'], found;"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True)


def test_memory_stays_bounded(tmp_path: Path) -> None:
    """A tensor of 400 MB is merged with less than 60 MB of memory."""
    saved(tmp_path / "small", {"a": torch.ones(1000), "b": torch.ones(20, 25).t()})
    saved(tmp_path / "large", {"a": torch.ones(100_000_000), "b": torch.ones(2000, 2500).t()})
    recipe = "merge_method: linear\nmodels: [{model: ./X, parameters: {weight: 1}}]\n"
    growth = measure_growth(tmp_path, *(recipe.replace("X", name) for name in ("small", "large")))
    assert growth.measured < 60_000_000
