"""The worked example of docs/extending.md runs as it is printed; other methods are refused."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from merging import merge, tensors_of
from tiny_models import write_family

from resumerge.errors import InputError
from resumerge.methods import METHODS, load_methods
from resumerge.methods.averages.linear import Linear
from resumerge.methods.loading import VARIABLE
from resumerge.methods.registry import Registry

DOCUMENT = Path(__file__).parents[2] / "docs" / "extending.md"

DUMMY = """
from resumerge import kernels
from resumerge.methods import KernelMethod, Method, Parameter

SCALE = Parameter("scale", "factor for every element")

class Dummy(Method):
    name = "dummy"
    summary = "the first model, scaled"
    parameters = (SCALE,)

    def block(self, tensor, inputs, block, statistics):
        return inputs[0] * tensor.params["scale"]

class DummyOfKernels(KernelMethod):
    name = "dummy_of_kernels"
    summary = "the first model, scaled"
    parameters = (SCALE,)

    def compute(self, tensor, inputs, run, statistics, out):
        kernels.weighted_sum(inputs[:1], [tensor.params["scale"]], out)
"""


def example(language: str, number: int = 0) -> str:
    return re.findall(rf"```{language}\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)[number]


@pytest.fixture
def forgetting() -> Iterator[None]:
    """Forget the methods that a test registers when the test ends."""
    state = (dict(METHODS._methods), dict(METHODS._origins), set(METHODS._loaded))
    yield
    METHODS._methods, METHODS._origins, METHODS._loaded = state


def resumerge(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command = [sys.executable, "-m", "resumerge", *words]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def method_file(folder: Path, text: str = "", name: str = "trust_region.py") -> Path:
    file = folder / name
    file.write_text(text or example("python"))
    return file


@pytest.mark.usefixtures("forgetting")
def test_the_documented_method_merges(tmp_path: Path) -> None:
    load_methods([method_file(tmp_path)])
    models = write_family(tmp_path / "models")
    got = tensors_of(merge(models, example("yaml"), tmp_path / "out"))
    base, math, code = (tensors_of(models / name) for name in ("base", "math", "code"))
    for name, tensor in base.items():
        mean = ((math[name] - tensor) + (code[name] - tensor)) / 2
        change = got[name] - tensor
        assert float(change.norm()) <= 0.5001
        if "layers" not in name:  # where the gradient is at its first value
            want = mean * min(1.0, 0.1 / float(mean.norm()))
            np.testing.assert_allclose(change, want, atol=1e-6)


@pytest.mark.usefixtures("forgetting")
@pytest.mark.parametrize("blocks", [1, 4])
def test_the_documented_kernel_method_merges(
    blocks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The method of kernels gives what the one of torch gives, whatever the block runs."""
    monkeypatch.setattr("resumerge.tensors.target.BLOCK_ELEMENTS", 300)
    monkeypatch.setattr(
        "resumerge.engine.execute.uncommitted_shares.BLOCK_RUN_BYTES", blocks * 4 * 300
    )
    load_methods([method_file(tmp_path), method_file(tmp_path, example("python", 1), "fast.py")])
    models = write_family(tmp_path / "models")
    recipe = example("yaml")
    expected = tensors_of(merge(models, recipe, tmp_path / "slow"))
    fast = recipe.replace("trust_region", "fast_trust_region")
    got = tensors_of(merge(models, fast, tmp_path / "fast"))
    for name, tensor in expected.items():
        np.testing.assert_allclose(got[name], tensor, atol=1e-6)


def test_a_method_needs_nothing_beside_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method is validated, listed, estimated and merged, whether it uses torch or kernels."""
    models = write_family(tmp_path / "models")
    monkeypatch.setenv(VARIABLE, str(method_file(tmp_path, DUMMY)))
    for name in ("dummy", "dummy_of_kernels"):
        assert name in resumerge("methods", "--json", cwd=models).stdout
        recipe = f"merge_method: {name}\nmodels: [{{model: math}}, {{model: code}}]\n"
        (models / "recipe.yaml").write_text(recipe)
        refused = resumerge("plan", "recipe.yaml", cwd=models)
        assert refused.returncode == 2
        assert "factor for every element" in refused.stderr
        (models / "recipe.yaml").write_text(recipe + "parameters: {scale: 0.5}\n")
        planned = resumerge("plan", "recipe.yaml", "--json", cwd=models)
        assert json.loads(planned.stdout)["memory"]["predicted_peak_rss"] > 0
        assert resumerge("run", "recipe.yaml", name, cwd=models).returncode == 0
        math, got = tensors_of(models / "math"), tensors_of(models / name)
        assert all((got[key] == 0.5 * tensor).all() for key, tensor in math.items())


@pytest.mark.usefixtures("forgetting")
def test_its_identity_changes_with_its_text(tmp_path: Path) -> None:
    load_methods([method_file(tmp_path)])
    before = METHODS.identity("trust_region")
    assert before["version"] == 1
    again = Registry()
    again.load([method_file(tmp_path, example("python") + "# another comment\n")])
    assert again.identity("trust_region") != before


def test_the_environment_names_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(method_file(tmp_path)))
    registry = Registry()
    assert "trust_region" in registry
    assert "trust_region" in set(registry)


def test_a_file_is_loaded_once(tmp_path: Path) -> None:
    registry = Registry()
    registry.load([method_file(tmp_path), method_file(tmp_path)])
    registry.load([tmp_path / "trust_region.py"])
    assert len([name for name in registry._methods if name == "trust_region"]) == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n", "contains no merge method"),
        ("1 / 0\n", "ZeroDivisionError"),
        ("def\n", "SyntaxError"),
        ("import sys\nsys.exit(4)\n", "SystemExit: 4 (trust_region.py, line 2)"),
        ("raise KeyboardInterrupt\n", "KeyboardInterrupt (trust_region.py, line 1)"),
        (
            "from resumerge.methods.averages.linear import Linear\n"
            "class Mine(Linear):\n    name = 'mine'\n    def __init__(self): 1 / 0\n",
            "ZeroDivisionError: division by zero (trust_region.py, line 4)",
        ),
        (
            "from resumerge.methods.averages.linear import Linear\n"
            "class Mine(Linear):\n    name = 'linear'\n    summary = ''\n",
            "'linear' already exists",
        ),
        (
            "from resumerge.methods import Method\n"
            "class Mine(Method):\n    name = 'mine'\n    def block(self, *args): ...\n",
            "no summary",
        ),
    ],
)
def test_other_files_are_refused(text: str, expected: str, tmp_path: Path) -> None:
    registry = Registry([Linear()])
    with pytest.raises(InputError) as refused:
        registry.load([method_file(tmp_path, text)])
    assert expected in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Registry().load([tmp_path / "nothing.py"])


def test_a_recipe_cannot_name_a_file(tmp_path: Path) -> None:
    models = write_family(tmp_path / "models")
    method_file(models)
    with pytest.raises(InputError, match="Unknown merge method"):
        merge(models, "merge_method: ./trust_region.py\nmodels: [{model: math}]\n", tmp_path / "o")
