"""Runs of recipes that make an adapter, whole or killed while matrices are computed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from merging import shards_of, working_in
from small_batches import use_small_batches

import resumerge
from resumerge.engine.lifecycle.session import Session
from resumerge.options import Options
from resumerge.tensors import BothMatrices


def run(folder: Path, out: str, **options: Any) -> Path:
    """Run ``recipe.yaml`` of a folder into an output folder in it, and return the output folder."""
    with working_in(folder):
        chosen = Options(state_dir=folder / f"{out}.state", **options)
        Session(chosen).run(folder / "recipe.yaml", folder / out)
    return folder / out


def check_a_kill(
    folder: Path, kind: type[BothMatrices], computed: int, patch: pytest.MonkeyPatch
) -> None:
    """Check that a run is resumed to the same bytes after SIGKILL.

    Args:
        folder: the folder of ``recipe.yaml``.
        kind: the class of the adapter's tensors.
        computed: the number of modules that are computed before the kill.
        patch: the patches, which the test undoes.
    """
    use_small_batches(patch, 1024)
    whole = run(folder, "whole", threads=1)
    if (child := os.fork()) == 0:
        read, count = kind.read, 0

        def counted(*words: Any) -> None:
            nonlocal count
            count += 1
            if count > computed:
                os.kill(os.getpid(), signal.SIGKILL)
            read(*words)

        patch.setattr(kind, "read", counted)
        try:
            run(folder, "killed", threads=1)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    assert not (folder / "killed/adapter_model.safetensors").exists()
    with working_in(folder):
        [before] = resumerge.status("killed", state_dir="killed.state")["runs"]
        assert before["units"]["committed"] < before["units"]["total"]
        assert before["units"]["committed"] > 0 or computed == 1
        Session(Options(state_dir=Path("killed.state"))).resume("killed")
    assert shards_of(folder / "killed") == shards_of(whole)
    for name in ("adapter_config.json", "README.md"):
        text = (folder / "killed" / name).read_text()
        assert text.replace("# killed", "# whole") == (whole / name).read_text()
