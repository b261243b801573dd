"""Every tensor that is as long as the vocabulary moves with its tokens, whatever it is called: the
output loads, and its logits are those of its tokens. A tensor that cannot be identified is refused.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from merging import merge, tensors_of
from safetensors.torch import load_file, save_file
from tiny_tokenizers import PROSE, wordpiece
from token_models import vocabulary
from tokenizers import Tokenizer
from torch import Tensor

from resumerge.errors import InputError

TWO = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: %s}]\n"
BERT = {"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 16}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 32}
MOBILE = {**BERT, "embedding_size": 8, "intra_bottleneck_size": 8}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "DistilBertForMaskedLM": {"dim": 16, "hidden_dim": 24, "n_layers": 2, "n_heads": 2},
    "XLMWithLMHeadModel": {"emb_dim": 16, "n_layers": 2, "n_heads": 2},
    "XLNetLMHeadModel": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24},
    "CTRLLMHeadModel": {"n_embd": 16, "n_layer": 2, "n_head": 2, "dff": 24},
    "ElectraForMaskedLM": {**BERT, "embedding_size": 8},
    "RobertaForMaskedLM": BERT,
    "BartForConditionalGeneration": {
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
    },
}
"""The options of a small model of each."""


TRAINED = wordpiece(PROSE, 120).to_str()
"""A tokenizer that is trained once, because training numbers equally common pieces in any order."""


def write(folder: Path, kind: str, seed: int, options: dict[str, Any], *added: str) -> None:
    """Write a model with random weights, biases too, and a tokenizer."""
    trained = Tokenizer.from_str(TRAINED)
    tokens = trained.get_vocab_size() + trained.add_tokens(list(added))
    transformers.PreTrainedTokenizerFast(tokenizer_object=trained).save_pretrained(folder)
    cls = getattr(transformers, kind)
    torch.manual_seed(seed)
    model = cls(cls.config_class(vocab_size=tokens, **options))
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point():
                tensor.normal_(0, 0.3)
    model.save_pretrained(folder)


def loaded(folder: Path, kind: str) -> Any:
    """Load a model, and check that transformers finds every tensor and no other."""
    model, info = getattr(transformers, kind).from_pretrained(folder, output_loading_info=True)
    assert not any(info[key] for key in info if key.endswith("keys"))
    return model.eval()


def logits(folder: Path, kind: str, tokens: list[str]) -> dict[str, Tensor]:
    """Return a model's logits for each token of its vocabulary, after a text of these tokens."""
    ids, model = vocabulary(folder), loaded(folder, kind)
    feed = {"input_ids": torch.tensor([[ids[token] for token in tokens]])}
    if model.config.is_encoder_decoder:
        feed["decoder_input_ids"] = feed["input_ids"]
    with torch.no_grad():
        found = model(**feed)
    return {token: found.logits[0, :, number] for token, number in ids.items()}


def renumbered(folder: Path, out: Path, kind: str) -> None:
    """Write the model with other numbers for its tokens, and check that its logits are the same."""
    shutil.copytree(folder, out)
    count = len(vocabulary(folder))
    order = torch.randperm(count, generator=torch.Generator().manual_seed(7))
    place = order.argsort().tolist()
    facts = json.loads((out / "tokenizer.json").read_text())
    facts["model"]["vocab"] = {t: place[n] for t, n in facts["model"]["vocab"].items()}
    for token in facts["added_tokens"]:
        token["id"] = place[token["id"]]
    (out / "tokenizer.json").write_text(json.dumps(facts))
    tensors = load_file(out / "model.safetensors")
    moved = {
        name: tensor[order]
        if tensor.shape[0] == count
        else tensor[..., order]
        if tensor.shape[-1] == count
        else tensor
        for name, tensor in tensors.items()
    }
    save_file({n: t.contiguous() for n, t in moved.items()}, out / "model.safetensors")
    text = [t for t, n in vocabulary(folder).items() if n % 9 == 8 and place[n] > 4]  # no padding
    before, after = logits(folder, kind, text), logits(out, kind, text)
    assert all(torch.allclose(before[token], after[token], atol=1e-5) for token in before), kind


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    for kind, options in ARCHITECTURES.items():
        write(folder / kind / "a", kind, 1, options)
        write(folder / kind / "b", kind, 2, options)
        write(folder / kind / "more", kind, 3, options, "[more]")
        renumbered(folder / kind / "b", folder / kind / "renumbered", kind)
    return folder


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_an_added_token_has_a_row_everywhere(kind: str, models: Path, tmp_path: Path) -> None:
    here = models / kind
    out = merge(here, TWO % "more" + "tokenizer_source: union\n", tmp_path / "out")
    said = logits(out, kind, ["t", "[more]"])
    assert len(said) == len(vocabulary(here / "a")) + 1
    number, before = vocabulary(out)["[more]"], tensors_of(here / "more")
    grown = 0
    for name, tensor in tensors_of(out).items():
        own = before[name]
        if tensor.shape != tensors_of(here / "a")[name].shape:
            axis = tensor.shape.index(len(said))
            row = vocabulary(here / "more")["[more]"]
            assert torch.equal(tensor.select(axis, number), own.select(axis, row))
            grown += 1
    assert grown >= 2, "an embedding and a bias at least"


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_other_numbers_for_the_same_tokens_change_nothing(
    kind: str, models: Path, tmp_path: Path
) -> None:
    here = models / kind
    expected = merge(here, TWO % "b", tmp_path / "same")
    out = merge(here, TWO % "renumbered" + "tokenizer_source: base\n", tmp_path / "moved")
    found = tensors_of(out)
    for name, tensor in tensors_of(expected).items():
        assert torch.equal(found[name], tensor), name
    text = ["t", "o"]
    before, after = logits(expected, kind, text), logits(out, kind, text)
    assert all(torch.equal(before[token], after[token]) for token in before)


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_token_of_the_recipes_own_has_a_row_everywhere(
    kind: str, models: Path, tmp_path: Path
) -> None:
    new = 'tokenizer: {tokens: {"[new]": {source: {kind: zero}}}}\n'
    out = merge(models / kind, TWO % "b" + new, tmp_path / "out")
    assert len(logits(out, kind, ["t", "[new]"])) == len(vocabulary(models / kind / "a")) + 1


def test_an_older_name_of_the_size_is_followed(models: Path, tmp_path: Path) -> None:
    kind = "XLMWithLMHeadModel"
    shutil.copytree(models / kind, tmp_path / "old")
    for name in ("a", "more"):
        path = tmp_path / "old" / name / "config.json"
        path.write_text(path.read_text().replace('"vocab_size"', '"n_words"'))
    out = merge(tmp_path / "old", TWO % "more" + "tokenizer_source: union\n", tmp_path / "out")
    assert json.loads((out / "config.json").read_text())["n_words"] == len(vocabulary(out))
    logits(out, kind, ["t", "[more]"])


@pytest.mark.parametrize(
    ("kind", "head"),
    [("XLMWithLMHeadModel", "pred_layer.proj.weight"), ("XLNetLMHeadModel", "lm_loss.weight")],
)
def test_a_tied_head_that_only_one_model_saved_is_found(
    kind: str, head: str, models: Path, tmp_path: Path
) -> None:
    """Older checkpoints store the tensor of a tied head twice."""
    shutil.copytree(models / kind, tmp_path / "models")
    path = tmp_path / "models" / "a" / "model.safetensors"
    tensors = load_file(path)
    [embedding] = [n for n, t in tensors.items() if "embedding" in n and len(t) == 120]
    tensors[head] = tensors[embedding].clone()
    save_file(tensors, path, metadata={"format": "pt"})
    out = tensors_of(merge(tmp_path / "models", TWO % "b", tmp_path / "out"))
    assert torch.equal(out[head], out[embedding])
    logits(tmp_path / "out", kind, ["t"])


@pytest.mark.parametrize("other", ["more", "renumbered"])
def test_what_cannot_be_told_is_refused_by_name(other: str, tmp_path: Path) -> None:
    """MobileBERT's head has the tokens in the columns of one of its two parts."""
    kind = "MobileBertForMaskedLM"
    for seed, name in enumerate("ab"):
        write(tmp_path / name, kind, seed, MOBILE)
    write(tmp_path / "more", kind, 3, MOBILE, "[more]")
    renumbered(tmp_path / "b", tmp_path / "renumbered", kind)
    with pytest.raises(
        InputError, match=r"cannot be identified[\s\S]*cls\.predictions\.dense\.weight"
    ):
        merge(tmp_path, TWO % other + "tokenizer_source: union\n", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    out = merge(tmp_path, TWO % "b" + "tokenizer_source: union\n", tmp_path / "out")
    logits(out, kind, ["t"])


def test_an_embedding_with_rows_for_something_else_is_not_cut(tmp_path: Path) -> None:
    """The embedding of Llama 3.2 Vision, for example, has eight rows for images."""
    for seed, name in enumerate("ab"):
        kind, options = "LlamaForCausalLM", {**BERT, "num_key_value_heads": 2}
        write(tmp_path / name, kind, seed, options, f"[{name}]")
        tensors = load_file(tmp_path / name / "model.safetensors")
        wide = torch.cat([tensors["model.embed_tokens.weight"], torch.ones(4, 16)])
        tensors["model.embed_tokens.weight"] = wide
        save_file(tensors, tmp_path / name / "model.safetensors", metadata={"format": "pt"})
    recipe = TWO % "b" + "tokenizer_source: base\n"
    with pytest.raises(InputError, match=r"cannot be identified[\s\S]*model\.embed_tokens\.weight"):
        merge(tmp_path, recipe, tmp_path / "out")
