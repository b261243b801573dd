"""The notebook in a real kernel: cells executed, kernels killed, machines lost."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import nbformat
from loopback_hub.hub import Hub
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, DeadKernelError
from tiny_models import LLAMA, write_family

ROOT = Path(__file__).parents[3]
NOTEBOOK = ROOT / "colab" / "resumerge.ipynb"
MERGES = ("settings", "install", "recipe", "plan", "run")
"""The cells that merge."""

CONFIG = {**LLAMA, "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 8}

SHARD_SIZE = "100KB"
"""The size limit of a shard; the output has seven."""

IMPATIENT = """
import signal
from resumerge.engine.resources.signals import StopRequest
handle = StopRequest._handle
def handle_twice(self, signum, frame):
    is_first = not self.requested
    try:
        handle(self, signum, frame)
    finally:
        if is_first:
            signal.raise_signal(signum)
StopRequest._handle = handle_twice
"""
"""A cell after which each interrupt of a merge is followed by a second one.

One that another process sends may come too late: a kernel that is interrupted while it sends a
reply sends none.
"""

RECIPE = """
merge_method: linear
models:
  - {model: org/math, parameters: {weight: 0.6}}
  - {model: org/code, parameters: {weight: 0.4}}
dtype: bfloat16
"""


def tiny_llamas(folder: Path) -> dict[str, dict[str, bytes]]:
    """Make the files of the repos `math` and `code`: shards of a layer or two, and a tokenizer."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

    write_family(folder, CONFIG)
    words = [
        "<unk>",
        *[
            "The",
            "capital",
            "of",
            "France",
            "is",
            "merge",
            "two",
            "models",
            "and",
            "keep",
            "what",
            "they",
            "know",
        ],
    ]
    words += [f"word{n}" for n in range(CONFIG["vocab_size"] - len(words))]
    cut = Tokenizer(models.WordLevel({word: n for n, word in enumerate(words)}, unk_token="<unk>"))
    cut.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=cut, unk_token="<unk>")
    made = {}
    for name in ("math", "code"):
        model = LlamaForCausalLM.from_pretrained(folder / name, torch_dtype=torch.bfloat16)
        place = folder / "repos" / name
        model.save_pretrained(place, max_shard_size="100KB")
        tokenizer.save_pretrained(place)
        made[name] = {path.name: path.read_bytes() for path in place.iterdir()}
    return made


class Hands:
    """A user of the notebook.

    Args:
        hub: the server of the models.
        folder: the folder of everything; each machine is a folder in it.
        undisturbed: gets the model that `undisturbed` makes, and has it if it was made before.
    """

    def __init__(self, hub: Hub, folder: Path, undisturbed: dict[str, bytes]) -> None:
        self.hub, self._folder, self._undisturbed = hub, folder, undisturbed
        (folder / "merge.yaml").write_text(RECIPE)
        self.lose_machine()

    def lose_machine(self) -> None:
        """Lose the machine with its disk; the next one has nothing."""
        number = len(list(self._folder.glob("machine-*")))
        self.machine = self._folder / f"machine-{number}"
        self.machine.mkdir()

    @property
    def output(self) -> Path:
        return self.machine / "merged"

    def run_all(
        self,
        meanwhile: Callable[[int], None] | None = None,
        notebook: Any = None,
        **env: str,
    ) -> Any:
        """Execute every cell, and return the executed notebook.

        Args:
            meanwhile: called in a thread with the kernel's pid, once there is one.
            notebook: to be filled with outputs.
            env: variables for the kernel.

        Raises:
            DeadKernelError: the kernel was killed.
        """
        notebook = notebook or nbformat.read(NOTEBOOK, as_version=4)
        client = NotebookClient(
            notebook,
            kernel_name="python3",
            resources={"metadata": {"path": str(self.machine)}},
        )
        client.create_kernel_manager()
        assert client.km is not None
        client.km.kernel_spec.argv[0] = sys.executable  # type: ignore[union-attr]
        if meanwhile is not None:
            Thread(target=self._once_there, args=(client, meanwhile), daemon=True).start()
        client.execute(env={**self._environment(), **env}, cleanup_kc=True)
        return notebook

    def _environment(self) -> dict[str, str]:
        """Return the environment of a kernel, or of another process."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("RESUMERGE_")}
        return {
            **inherited,
            **self.hub.settings,
            "HF_HUB_OFFLINE": "0",
            "HF_HOME": str(self.machine / "hf"),
            "PYTHONPATH": str(ROOT),
            "RESUMERGE_RECIPE": str(self._folder / "merge.yaml"),
            "RESUMERGE_SHARD_SIZE": SHARD_SIZE,
            "CUDA_VISIBLE_DEVICES": "",
        }

    @staticmethod
    def _once_there(client: NotebookClient, then: Callable[[int], None]) -> None:
        while not (client.km and client.km.has_kernel):
            time.sleep(0.05)
        provisioner: Any = client.km.provisioner
        while not provisioner.pid:
            time.sleep(0.05)
        then(provisioner.pid)

    def undisturbed(self) -> dict[str, bytes]:
        """Return the model that the command makes on another machine."""
        if not self._undisturbed:
            self.lose_machine()
            self.merge()
            self._undisturbed |= self.model()
        return self._undisturbed

    def merge(self, *options: str, **env: str) -> None:
        """Merge with the command."""
        recipe = str(self._folder / "merge.yaml")
        words = ["run", recipe, "merged", "--shard-size", SHARD_SIZE, *options]
        command = [sys.executable, "-m", "resumerge", *words]
        subprocess.run(command, cwd=self.machine, env={**self._environment(), **env}, check=True)

    def kill_when_committed(self, units: int, mirrored: int) -> Callable[[int], None]:
        """Return a `meanwhile` that kills once so many units are committed and shards mirrored."""

        def wait(pid: int) -> None:
            while self.committed() < units or self.mirrored() < mirrored:
                time.sleep(0.02)
            os.kill(pid, signal.SIGKILL)

        return wait

    def die_in_run_cell(self, units: int = 20, mirrored: int = 0, **env: str) -> None:
        """Execute the cells until the kernel is killed in the middle of the merge."""
        found: BaseException | None = None
        try:
            self.run_all(self.kill_when_committed(units, mirrored), **env)
        except Exception as error:  # nbclient may fail once more while it clears a kernel away
            found = error
            while found is not None and not isinstance(found, DeadKernelError):
                found = found.__context__
        assert found is not None, "the kernel was killed"
        assert units <= self.committed() < self.total(), "in the middle of the merge"

    def run_all_but_interrupt(self, units: int = 20) -> Any:
        """Execute the cells until the kernel is interrupted in the middle of the merge.

        The kernel is interrupted twice, as by an impatient user. Return the notebook as far as it
        was executed.
        """

        def interrupt(pid: int) -> None:
            while self.committed() < units:
                time.sleep(0.02)
            os.kill(pid, signal.SIGINT)

        notebook = nbformat.read(NOTEBOOK, as_version=4)
        [installs] = (n for n, cell in enumerate(notebook.cells) if cell["id"] == "install")
        notebook.cells.insert(installs + 1, nbformat.v4.new_code_cell(IMPATIENT))
        try:
            self.run_all(interrupt, notebook=notebook)
        except CellExecutionError:
            return notebook
        raise AssertionError("the cell was interrupted")

    def committed(self) -> int:
        """Return the number of units that the newest run has committed."""
        return self._ask("SELECT count(*) FROM units WHERE state = 'committed'")

    def total(self) -> int:
        """Return the number of units of the newest run."""
        return self._ask("SELECT count(*) FROM units")

    def mirrored(self) -> int:
        """Return the number of the newest run's files that its mirror has."""
        return self._ask("SELECT count(*) FROM mirrored")

    def attempts(self) -> int:
        """Return the number of attempts of the newest run."""
        return self._ask("SELECT count(*) FROM attempts")

    def computed_last(self) -> int:
        """Return the number of units that the newest attempt committed."""
        return self._ask("SELECT units_committed FROM attempts ORDER BY n DESC LIMIT 1")

    def _ask(self, query: str) -> int:
        ledgers = sorted(self.machine.glob("state/*[0-9a-f]/ledger.db"))
        if not ledgers:
            return 0
        with closing(sqlite3.connect(f"{ledgers[-1].as_uri()}?mode=ro", uri=True)) as database:
            return int(database.execute(query).fetchone()[0])

    def model(self) -> dict[str, bytes]:
        """Return the finished files except the card, which names the folder."""
        paths = sorted(path for path in self.output.iterdir() if path.name != "README.md")
        return {path.name: path.read_bytes() for path in paths}


def cells(*parts: str) -> Any:
    """Return a notebook of the cells with these ids, and of other cells, passed as text."""
    whole = nbformat.read(NOTEBOOK, as_version=4)
    known = {cell["id"]: cell for cell in whole.cells}
    whole.cells = []
    for number, part in enumerate(parts):
        cell = nbformat.v4.new_code_cell(known[part].source if part in known else part)
        cell["id"] = f"{part if part in known else 'extra'}-{number}"
        whole.cells.append(cell)
    return whole


def cell_outputs(notebook: Any, cell: str) -> list[Any]:
    """Return the outputs of the cell with this id."""
    (found,) = (c for c in notebook.cells if c["id"] == cell)
    return list(found.outputs)


def text_of(notebook: Any, cell: str) -> str:
    """Return what a cell printed and showed, as plain text."""
    parts = []
    for output in cell_outputs(notebook, cell):
        data = output.get("data", {})
        printed = output.get("text", "") if output.get("name") == "stdout" else ""
        parts.append(printed or data.get("text/plain", ""))
    return "".join(parts)


def html_of(notebook: Any, cell: str) -> list[str]:
    """Return the HTML of a cell's outputs."""
    outputs = cell_outputs(notebook, cell)
    return [o["data"]["text/html"] for o in outputs if "text/html" in o.get("data", {})]
