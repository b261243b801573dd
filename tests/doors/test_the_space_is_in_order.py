"""Promise: the Space's front matter requests what the Space needs; without logins it exits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

SPACE = Path(__file__).parents[2] / "doors" / "space"


def test_its_front_matter_asks_for_a_login_that_may_push() -> None:
    _, front, _ = (SPACE / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    settings = yaml.safe_load(front)
    assert (settings["sdk"], settings["hf_oauth"]) == ("gradio", True)
    assert {"write-repos", "manage-repos", "read-repos"} <= set(settings["hf_oauth_scopes"])
    assert (SPACE / settings["app_file"]).is_file()
    assert len(settings["short_description"]) <= 60
    constraints = SPACE.parents[1] / "constraints.txt"
    assert f"gradio=={settings['sdk_version']}\n" in constraints.read_text(encoding="utf-8")


@pytest.mark.needs("gradio")
def test_where_nobody_can_log_in_it_does_not_start(tmp_path: Path) -> None:
    own = {name: value for name, value in os.environ.items() if not name.startswith("OAUTH_")}
    done = subprocess.run(
        [sys.executable, SPACE / "app.py"],
        cwd=tmp_path,
        env=own | {"HF_TOKEN": "hf_owner"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "This is no Space of Hugging Face where people can log in" in done.stderr
    assert "hf_owner" not in done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
