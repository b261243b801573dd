"""Promise: an adapter that a cluster makes has the bytes of one that this machine makes."""

from pathlib import Path

from adapter_runs import run
from cluster_runs import RayCluster
from merging import shards_of, working_in
from tiny_models import LLAMA, write_family

EXTRACTION = """\
extract_lora: {model: MODEL, max_rank: 4, exclude: [lm_head, embed], skip_undecomposable: true}
base_model: base
out_dtype: float32
"""
COMBINATION = """\
merge_method: ties
models:
  - {model: ./of-math, parameters: {weight: 0.6, density: 0.5}}
  - {model: ./of-code, parameters: {weight: 0.4, density: 0.5}}
rank: 6
"""


def check(folder: Path, recipe: str, cluster: RayCluster, out: str) -> None:
    """Compare the adapter that a cluster makes with this machine's, which stays in `out`."""
    (folder / "recipe.yaml").write_text(recipe)
    with working_in(folder):
        here = run(folder, out)
        there = run(folder, f"{out}-there", ray=cluster.address)
    assert shards_of(there) == shards_of(here)
    config = "adapter_config.json"
    assert (there / config).read_bytes() == (here / config).read_bytes()
    assert {path.name for path in there.iterdir()} == {path.name for path in here.iterdir()}


def test_extracted_and_combined(cluster: RayCluster, tmp_path: Path) -> None:
    write_family(tmp_path, LLAMA)
    for model in ("math", "code"):
        check(tmp_path, EXTRACTION.replace("MODEL", model), cluster, f"of-{model}")
    check(tmp_path, COMBINATION, cluster, "combined")
