"""Promise: a job of Hugging Face whose container is killed continues in the next, from its mirror.

The job is what `hf jobs uv run` submits. The server and the containers are simulated.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs import MERGE, ROOT, TOKEN, Containers, JobServer, kill, submit
from loopback_hub import Hub
from no_more_uploads import NoMoreUploads
from uv_wheels import Wheels
from waiting import wait_until

RECIPE = """
merge_method: linear
models: [{model: org/math}, {model: org/code}]
parameters: {weight: 0.5}
"""
REPO = "me/merged"


@pytest.fixture
def server() -> Iterator[JobServer]:
    server = JobServer()
    yield server
    server.close()


def documented() -> list[str]:
    """Return the words after `hf` of the command in docs/doors/hf-jobs.md."""
    page = (ROOT / "docs" / "doors" / "hf-jobs.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^    hf (jobs uv run .*)$", page.replace("\\\n", " "), re.M)
    return str(line).split()


def test_killed_twice_it_has_the_same_bytes(
    server: JobServer, models: Hub, wheels: Wheels, tmp_path: Path
) -> None:
    models.tokens = {TOKEN: "write"}
    (tmp_path / "merge.yaml").write_text(RECIPE)
    words = [str(MERGE) if word.endswith("/merge.py") else word for word in documented()]
    submit(server, tmp_path, *words, "--shard-size", "400KB", "--threads", "1")
    [job] = server.jobs
    assert job["secrets"] == {"HF_TOKEN": TOKEN}
    assert job["timeoutSeconds"] == 12 * 3600
    assert job["attempts"] > 1
    containers = Containers(job, tmp_path, models, wheels)

    for _ in range(2):
        fault = NoMoreUploads(models, REPO)
        container = containers.start()
        wait_until(lambda: fault.reached, container)  # noqa: B023
        kill(container)
        fault.end()
        assert "config.json" not in models.contents(REPO), "in the middle of the merge"
    last = containers.start()
    said, _ = last.communicate()
    assert last.returncode == 0, said
    assert TOKEN not in said
    made = {name: data for name, data in models.contents(REPO).items() if name.startswith("model")}

    del models.repos[REPO]
    undisturbed = containers.start()
    said, _ = undisturbed.communicate()
    assert undisturbed.returncode == 0, said
    there = models.contents(REPO)
    assert made == {name: data for name, data in there.items() if name.startswith("model")}
    assert len(made) > 4


def test_a_dry_run_shows_what_the_script_asks_for(server: JobServer, tmp_path: Path) -> None:
    (tmp_path / "merge.yaml").write_text(RECIPE)
    words = [str(MERGE) if word.endswith("/merge.py") else word for word in documented()]
    words.insert(words.index(str(MERGE)), "--dry-run")
    done = submit(server, tmp_path, *words)
    assert server.jobs == []
    assert "HF_TOKEN" in done.stdout
    assert TOKEN not in done.stdout + done.stderr
    assert not (tmp_path / "bucket").exists()
