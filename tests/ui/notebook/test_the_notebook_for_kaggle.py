"""Promise: on Kaggle, too, *Run All* goes on: from the Hub, which is all that a session leaves."""

from __future__ import annotations

import os
import signal

import nbformat
import pytest
from nbclient.exceptions import DeadKernelError
from no_more_uploads import NoMoreUploads
from notebook_kernels import NOTEBOOK, ROOT, Hands, html_of, text_of
from waiting import wait_until

KAGGLE = ROOT / "doors" / "kaggle.ipynb"
REPO = "org/mirrored"
ENVIRONMENT = {"RESUMERGE_MIRROR": f"hf://{REPO}", "RESUMERGE_LEASE_SECONDS": "2"}

SECRETS = """
import sys, types

class UserSecretsClient:
    def get_secret(self, name):
        return {"HF_TOKEN": "hf_of_kaggle\\n"}[name]

sys.modules["kaggle_secrets"] = types.ModuleType("kaggle_secrets")
sys.modules["kaggle_secrets"].UserSecretsClient = UserSecretsClient
"""


def stored() -> nbformat.NotebookNode:
    return nbformat.read(KAGGLE, as_version=4)


def on_kaggle() -> nbformat.NotebookNode:
    """Return the notebook with a first cell that provides Kaggle's secrets."""
    notebook = stored()
    secrets = nbformat.v4.new_code_cell(SECRETS)
    secrets["id"] = "secrets"
    notebook.cells.insert(0, secrets)
    return notebook


def test_it_is_stored_as_the_one_for_colab() -> None:
    notebook = stored()
    nbformat.validate(notebook)
    assert nbformat.writes(notebook).strip() == KAGGLE.read_text().strip()
    code = {cell["id"]: cell for cell in notebook.cells if cell.cell_type == "code"}
    assert all((cell.outputs, cell.execution_count) == ([], None) for cell in code.values())
    colab = {cell["id"]: cell for cell in nbformat.read(NOTEBOOK, as_version=4).cells}
    assert code["install"].source == colab["install"].source


def test_a_session_ends_and_the_next_one_has_nothing_but_the_hub(hands: Hands) -> None:
    hands.hub.tokens = {"hf_of_kaggle": "write"}
    fault = NoMoreUploads(hands.hub, REPO)

    def end_session(pid: int) -> None:
        wait_until(lambda: fault.reached)
        os.kill(pid, signal.SIGKILL)

    with pytest.raises(Exception) as ended:  # nbclient may fail once more as it clears away
        hands.run_all(end_session, notebook=on_kaggle(), **ENVIRONMENT)
    chain, error = [], ended.value
    while error is not None:
        chain.append(error)
        error = error.__context__  # type: ignore[assignment]
    assert any(isinstance(error, DeadKernelError) for error in chain), chain
    fault.end()
    assert "config.json" not in hands.hub.contents(REPO)
    hands.lose_machine()
    executed = hands.run_all(notebook=on_kaggle(), **ENVIRONMENT)
    assert "hf_of_kaggle" not in str(executed.cells[1:])
    assert hands.computed_last() < hands.total(), "what the mirror has is not computed again"
    assert not list(hands.output.glob("*.safetensors")), "the disk is left free"
    assert not list((hands.machine / "hf").rglob("*.safetensors")), "the models are not stored"
    assert "intact" in html_of(executed, "verify")[0]
    made = {n: data for n, data in hands.hub.contents(REPO).items() if n.startswith("model")}
    whole = {n: data for n, data in hands.undisturbed().items() if n.startswith("model")}
    assert made == whole


def test_without_a_mirror_it_says_what_is_lost(hands: Hands) -> None:
    executed = hands.run_all(notebook=stored())
    assert "whose disk is lost after the session" in text_of(executed, "settings")
    assert "This is not Kaggle" in text_of(executed, "login")
    assert "config.json" in hands.model()
