"""A merge by any method has the same bytes from torch and from each instruction set, whatever the
block runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from both_ways import SETS, Use
from example_parameters import example_parameters
from kernel_oracles import computed_by_oracles
from merging import merge, shards_of
from safetensors.torch import save_file

from resumerge.methods import METHODS

NEEDS_TORCH = ("arcee_fusion", "iso_c")
OUTPUTS = ("float32", "float16", "bfloat16")
DTYPES = {"base": torch.bfloat16, "a": torch.float16, "b": torch.float32, "c": torch.bfloat16}
SHAPES = ((), (1,), (7,), (1, 1), (40, 13), (1030, 1), (1, 1030), (3, 1500), (4, 5, 6), (9, 700))
BLOCK = 1500

RECIPES: dict[str, tuple[str, dict[str, object]]] = {
    **{method: (method, {}) for method in METHODS},
    "nuslerp by row": ("nuslerp", {"nuslerp_flatten": False}),
    "nuslerp by column": ("nuslerp", {"nuslerp_flatten": False, "nuslerp_row_wise": True}),
    "model_stock by row": ("model_stock", {"filter_wise": True}),
    "sce, selected": ("sce", {"select_topk": 0.4}),
    "trimmed_mean, trimmed": ("trimmed_mean", {"trim": 0.3}),
    "ties, rescaled": ("ties", {"rescale": True}),
    "passthrough, scaled": ("passthrough", {"scale": 0.3}),
}


def recipe(method: str, params: dict[str, object], with_base: bool, dtype: str) -> str:
    """Return a recipe with `params`, and the examples that the method's parameters declare."""
    declared = METHODS[method]
    count = (declared.most or 4) - (declared.base == "required")
    per_model, whole = example_parameters(method)
    document = {
        "merge_method": method,
        "models": [{"model": m, "parameters": per_model} for m in ("a", "b", "c")[:count]],
        "parameters": whole | params,
        "dtype": dtype,
    }
    return json.dumps(document | ({"base_model": "base"} if with_base else {}))


def bases(method: str) -> tuple[bool, ...]:
    return {"none": (False,), "required": (True,), "optional": (False, True)}[METHODS[method].base]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write models of different dtypes; some elements equal the base's, one is NaN, one inf."""
    folder = tmp_path_factory.mktemp("models")
    random = torch.Generator().manual_seed(0)
    base = {str(shape): torch.randn(shape, generator=random) for shape in SHAPES}
    for name, dtype in DTYPES.items():
        tensors = {}
        for key, values in base.items():
            changed = torch.rand(values.shape, generator=random) < 0.7
            change = 0.1 * torch.randn(values.shape, generator=random)
            tensors[key] = (values.bfloat16().float() + change * changed * (name != "base")).to(
                dtype
            )
        if name == "b":
            tensors["(40, 13)"][3, 5], tensors["(3, 1500)"][2, 1499] = torch.nan, torch.inf
        (folder / name).mkdir()
        save_file(tensors, folder / name / "model.safetensors")
    return folder


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_bytes(
    name: str,
    models: Path,
    tmp_path: Path,
    use_kernels: Use,
    monkeypatch: pytest.MonkeyPatch,
    soak: bool,
) -> None:
    """A method is merged in each dtype with --soak, else in one, which differs by method."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", BLOCK)
    method, params = RECIPES[name]

    def merged(blocks: int) -> dict[str, bytes]:
        monkeypatch.setattr(
            "resumerge.engine.execute.uncommitted_shares.BLOCK_RUN_BYTES", blocks * 4 * BLOCK
        )
        return shards_of(merge(models, text, tmp_path / "out", restart=True))

    for number, with_base in enumerate(bases(method), list(RECIPES).index(name)):
        for dtype in OUTPUTS if soak else [OUTPUTS[number % len(OUTPUTS)]]:
            text = recipe(method, params, with_base, dtype)
            with computed_by_oracles():
                expected = merged(blocks=1)
            for instructions, blocks in (*((each, 4) for each in SETS), (SETS[-1], 1)):
                use_kernels(instructions)
                assert merged(blocks) == expected, (instructions, blocks, with_base, dtype)


def test_no_other_merge_loads_torch(models: Path, tmp_path: Path) -> None:
    names = [*(name for name in RECIPES if name not in NEEDS_TORCH), *NEEDS_TORCH]
    for name in names:
        method, params = RECIPES[name]
        text = recipe(method, params, bases(method)[0], "bfloat16")
        (tmp_path / f"{name}.yaml").write_text(text)
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from resumerge.options import Options\n"
        "from resumerge.engine.lifecycle.session import Session\n"
        "for name in sys.argv[2:]:\n"
        "    place = Path(sys.argv[1], name)\n"
        "    options = Options(state_dir=place.with_suffix('.state'))\n"
        "    Session(options).run(place.with_suffix('.yaml'), place)\n"
        "    print(name, 'torch' in sys.modules, sep=': ')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path, *names],
        cwd=models,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [f"{name}: {name in NEEDS_TORCH}" for name in names]
