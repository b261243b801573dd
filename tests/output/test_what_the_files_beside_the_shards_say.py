"""Promise: config.json, the index and the tokenizer say what the shards hold, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_up_plans import REST, llama, plan, tensor

from resumerge.output.card import model_card
from resumerge.output.config import main_dtype, output_config
from resumerge.output.index import index_files
from resumerge.output.model_files import companions
from resumerge.output.token_ids import remap_token_ids
from resumerge.planning import Plan
from resumerge.recipe import ModelRef
from resumerge.sources import MetadataCache
from resumerge.sources.types import Source
from resumerge.tensors import Stored
from resumerge.tokenizers.output_files import extended_tokenizer
from resumerge.tokenizers.output_vocabulary import NewToken, OutputVocabulary
from resumerge.tokenizers.vocabulary import Vocabulary

COPY = "merge_method: passthrough\nmodels: [{model: a}]\n"


# The dtype


def of_dtypes(**bytes_of: tuple[int, int]) -> Plan:
    """Return the plan of a model with tensors of each dtype: their number, and the size of each."""
    others: list[Stored] = []
    for dtype, (count, numel) in bytes_of.items():
        others += [tensor(f"x.{dtype}.{number}", (numel,), dtype) for number in range(count)]
    model = llama("a", 0, others=others, without=list(llama("a", 0).tensors))
    return plan(COPY, model)


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"BF16": (1, 1000), "F32": (50, 4)}, "bfloat16"),
        ({"F32": (1, 1000), "BF16": (50, 4)}, "float32"),
        ({"F32": (1, 60), "BF16": (1, 100)}, "float32"),
        ({"F32": (3, 10), "BF16": (1, 70)}, "bfloat16"),
        ({"I64": (1, 9999), "F16": (1, 2)}, "float16"),
        ({"I64": (1, 9999)}, None),
    ],
)
def test_the_dtype_is_that_of_most_bytes(
    tensors: dict[str, tuple[int, int]], expected: str | None
) -> None:
    found = of_dtypes(**tensors)
    assert main_dtype(found) == expected
    config = output_config(found)
    assert config.get("torch_dtype") == expected and "dtype" not in config


def test_the_dtype_is_what_was_asked_for_whatever_config_said() -> None:
    model = llama("a", config={"dtype": "float32", "torch_dtype": "float32"})
    config = output_config(plan(COPY + "out_dtype: float16\n", model))
    assert (config["dtype"], config["torch_dtype"]) == ("float16", "float32")


def test_without_a_config_there_is_none() -> None:
    assert output_config(plan(COPY, replace(llama("a"), config={}))) == {}


# The layers

STACKED = (
    "merge_method: passthrough\nslices:\n"
    "  - sources: [{model: a, layer_range: [0, 2]}]\n"
    "  - sources: [{model: b, layer_range: [1, 4]}]\n"
)


def test_counts_and_lists_follow_the_slices_and_all_else_is_the_references() -> None:
    a = llama("a", 3, config={"layer_types": ["a0", "a1", "a2"], "no_rope_layers": [1, 0, 1]})
    b = llama("b", 4, config={"layer_types": ["b0", "b1", "b2", "b3"], "rope_theta": 7})
    before = dict(a.config)
    config = output_config(plan(STACKED, a, b))
    assert config == {
        **before,
        "num_hidden_layers": 5,
        "layer_types": ["a0", "a1", "b1", "b2", "b3"],
        "no_rope_layers": [1, 0, 0, 1, 1],
        "torch_dtype": "float32",
    }
    assert a.config == before, "the source's own is left as it is"


def test_a_nested_count_is_changed_where_it_stands() -> None:
    def nested(name: str, layers: int) -> Source:
        kinds = [f"{name}{n}" for n in range(layers)]
        text = {"num_hidden_layers": layers, "layer_types": kinds, "vocab_size": 10}
        config = {"model_type": "llava", "text_config": text, "num_hidden_layers": None}
        source = llama(name, layers)
        return replace(source, config={k: v for k, v in config.items() if v is not None})

    a = nested("a", 3)
    before = json.dumps(a.config)
    config = output_config(plan(STACKED, a, nested("b", 4)))
    assert json.dumps(a.config) == before, "the source's own is left as it is"
    assert config["text_config"]["num_hidden_layers"] == 5
    assert config["text_config"]["layer_types"] == ["a0", "a1", "b1", "b2", "b3"]
    assert "num_hidden_layers" not in config


def test_a_model_merged_whole_keeps_its_lists() -> None:
    config = output_config(plan(COPY, llama("a", config={"layer_types": ["x", "y", "z"]})))
    assert (config["layer_types"], config["num_hidden_layers"]) == (["x", "y", "z"], 3)


def test_a_head_of_its_own_is_not_tied() -> None:
    tied = llama("a", without=["lm_head.weight"], config={"tie_word_embeddings": True})
    both = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    assert output_config(plan(both, tied, llama("b")))["tie_word_embeddings"] is False
    assert output_config(plan(COPY, tied))["tie_word_embeddings"] is True
    assert output_config(plan(COPY, llama("a")))["tie_word_embeddings"] is False


def test_a_head_of_its_own_is_not_tied_by_a_nested_config_either() -> None:
    text = {"tie_word_embeddings": True, "vocab_size": 10}
    says = {"tie_word_embeddings": True, "text_config": text}
    tied = llama("a", without=["lm_head.weight"], config=says)
    both = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
    config = output_config(plan(both, tied, llama("b")))
    assert config["tie_word_embeddings"] is False
    assert config["text_config"] == {**text, "tie_word_embeddings": False}
    assert text["tie_word_embeddings"] is True, "the source's own is left as it is"
    assert output_config(plan(COPY, tied))["text_config"] == text


# The index


def test_the_index_names_the_shard_of_each_tensor() -> None:
    found = plan(COPY, llama("a"), shard_size=200)
    assert len(found.shards) > 2
    [(name, text)] = index_files(found)
    index = json.loads(text)
    assert name == "model.safetensors.index.json"
    assert index["metadata"] == {"total_size": sum(unit.nbytes for unit in found.units)}
    assert index["weight_map"] == {unit.name: found.shards[unit.shard].name for unit in found.units}
    assert list(index["weight_map"]) == sorted(index["weight_map"])
    assert len(index["weight_map"]) == 3 * len(REST) + 3


# All of them


def files_of(found: Plan) -> dict[str, bytes | Path]:
    """Return the companions of a plan, in their order."""
    return dict(companions(found, "merged", MetadataCache(), {}))


def test_config_comes_last_and_an_index_where_there_are_shards() -> None:
    """No loader takes a folder without config.json for a model."""
    alone = ["mergekit_config.yml", "README.md", "config.json"]
    assert list(files_of(plan(COPY, llama("a")))) == alone
    several = files_of(plan(COPY, llama("a"), shard_size=200))
    assert list(several) == ["model.safetensors.index.json", *alone]
    assert several["mergekit_config.yml"] == COPY.encode()
    assert list(files_of(plan(COPY, replace(llama("a"), config={})))) == alone[:-1]


def test_the_reference_gives_its_files_but_for_config(tmp_path: Path) -> None:
    names = ["generation_config.json", "modules.json", "tokenizer.json"]
    for name in ("config.json", "README.md", *names):
        (tmp_path / name).write_text("{}")
    carrier = replace(llama("a"), folder=tmp_path)
    found = files_of(plan(COPY, carrier))
    assert list(found) == [*names, "mergekit_config.yml", "README.md", "config.json"]
    assert {name: found[name] for name in names} == {name: tmp_path / name for name in names}
    card, config = found["README.md"], found["config.json"]
    assert isinstance(card, bytes) and b"library_name: sentence-transformers" in card
    assert isinstance(config, bytes) and json.loads(config)["num_hidden_layers"] == 3
    (tmp_path / "modules.json").unlink()
    card = files_of(plan(COPY, carrier))["README.md"]
    assert isinstance(card, bytes) and b"library_name: transformers" in card


# Token ids


@dataclass(frozen=True, eq=False)
class Known(Vocabulary):
    """A vocabulary without a file."""

    given: Mapping[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return json.loads(json.dumps(self.given))  # type: ignore[no-any-return]


def vocabulary(tokens: str, facts: Mapping[str, Any] | None = None) -> Known:
    source = Source(
        ref=ModelRef("m", "m"), kind="local", folder=Path(), revision=None, config={}, tensors={}
    )
    ids = {token: number for number, token in enumerate(tokens)}
    return Known(source, "BPE", ids, {}, (), "", facts or {})


def united(
    host: str, reference: str | None = None, new: tuple[NewToken, ...] = (), **more: Any
) -> OutputVocabulary:
    """Return the output's vocabulary; the reference has other tokens than the host if passed."""
    hosts = vocabulary(host, more.pop("facts", None))
    references = hosts if reference is None else vocabulary(reference)
    ids = {**hosts.ids, **{token.content: token.id for token in new}}
    return OutputVocabulary(hosts, references, new, ids, 50, 40, **more)


def test_ids_stay_where_the_tokenizer_is_the_models_own() -> None:
    config = {"eos_token_id": 1, "image_token_id": 2, "vocab_size": 40, "n": {"vocab_size": 40}}
    found = remap_token_ids(config, united("abc"), {"eos_token_id": 9, "pad_token_id": 9})
    assert found == {**config, "vocab_size": 50, "n": {"vocab_size": 50}}
    assert remap_token_ids({"vocab_size": 41}, united("abc"), {}) == {"vocab_size": 41}


def test_ids_follow_their_tokens_into_another_tokenizer() -> None:
    config = {
        "bos_token_id": 0,
        "eos_token_id": 1,
        "decoder_start_token_id": 2,
        "image_token_index": 0,
        "suppress_tokens": [0, 1, 3, -1],
        "begin_suppress_tokens": [3],
        "forced_eos_token_id": None,
        "token_count": 2,
        "nested": {"audio_token_id": 2, "video_token_id": 3},
    }
    host = {"eos_token_id": 7, "forced_eos_token_id": 4, "begin_suppress_tokens": [8]}
    nested = {"video_token_id": 6}
    found = remap_token_ids(config, united("xcba", "abcd"), {**host, "nested": nested})
    assert found == {
        "bos_token_id": 3,
        "eos_token_id": 7,
        "decoder_start_token_id": 1,
        "image_token_index": 3,
        "suppress_tokens": [3, 2, -1],
        "begin_suppress_tokens": [8],
        "forced_eos_token_id": None,
        "token_count": 2,
        "nested": {"audio_token_id": 1, "video_token_id": 6},
    }


def test_the_first_token_of_a_vocabulary_is_one_like_any() -> None:
    config = {"pad_token_id": 2, "suppress_tokens": [2, 0], "image_token_id": 2, "mask_token_id": 9}
    host = {"pad_token_id": 0, "suppress_tokens": [1], "mask_token_id": 0}
    assert remap_token_ids(config, united("cxy", "abc"), host) == {
        "pad_token_id": 0, "suppress_tokens": [0], "image_token_id": 0, "mask_token_id": 0
    }  # fmt: skip


def test_what_ends_text_comes_from_the_host_where_the_config_speaks_of_it_at_all() -> None:
    host = {"eos_token_id": [5, 6], "pad_token_id": 0, "bos_token_id": None}
    other = united("xcba", "abcd")
    assert remap_token_ids({"eos_token_id": 1}, other, host) == {
        "eos_token_id": [5, 6], "pad_token_id": 0
    }  # fmt: skip
    assert remap_token_ids({"temperature": 1}, other, host) == {"temperature": 1}
    assert remap_token_ids({"eos_token_id": 9}, other, {}) == {"eos_token_id": None}
    assert remap_token_ids({"suppress_tokens": [9]}, other, {}) == {"suppress_tokens": []}


# The tokenizer

ADDED = NewToken("new", 3, {"special": True, "content": "as it was called"})
PLAIN = NewToken("piece", 4, None)


def test_an_added_token_is_one_more_definition() -> None:
    facts = {
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}},
        "added_tokens": [{"id": 0}],
    }
    found = extended_tokenizer(united("abc", new=(ADDED,), facts=facts))
    assert found["model"] == facts["model"]
    assert found["added_tokens"] == [{"id": 0}, {"id": 3, "special": True, "content": "new"}]


@pytest.mark.parametrize(
    ("merges", "expected"),
    [
        (["a b"], ["a b", "ab c"]),
        ([["a", "b"]], [["a", "b"], ["ab", "c"]]),
        (None, [["ab", "c"]]),
    ],
)
def test_a_plain_token_is_in_the_vocabulary_with_its_merges(merges: Any, expected: Any) -> None:
    model = {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": merges}
    new = (ADDED, PLAIN)
    vocabulary = united("abc", new=new, facts={"model": model}, merges=(("ab", "c"),))
    found = extended_tokenizer(vocabulary)
    assert found["model"]["vocab"] == {"a": 0, "b": 1, "c": 2, "new": 3, "piece": 4}
    assert found["model"]["merges"] == expected
    assert found["added_tokens"] == [{"id": 3, "special": True, "content": "new"}]


def test_a_plain_piece_of_a_unigram_is_never_preferred() -> None:
    model = {"type": "Unigram", "vocab": [["a", -1.0], ["b", -5.0]]}
    new = (NewToken("piece", 3, None),)
    found = extended_tokenizer(united("ab", new=new, facts={"model": model}))
    assert found["model"]["vocab"] == [
        ["a", -1.0], ["b", -5.0], ["<no token 2>", -1005.0], ["piece", -1005.0]
    ]  # fmt: skip


@pytest.mark.parametrize("asked", ["", "chat_template: '{{ x }}'\n"])
def test_every_list_of_added_tokens_has_the_new_ones(asked: str, tmp_path: Path) -> None:
    known = {"1": {"content": "b", "special": False}}
    model = written_model(tmp_path / "a", "tokenizer.json", "special_tokens_map.json")
    (tmp_path / "a" / "added_tokens.json").write_text('{"b": 1}')
    config = {"added_tokens_decoder": known, "chat_template": "{{ y }}", "pad_token": "b"}
    (tmp_path / "a" / "tokenizer_config.json").write_text(json.dumps(config))
    vocabulary = read_by(model, model, new=(ADDED, PLAIN))
    files = files_of(replace(plan(COPY + asked, model), vocabulary=vocabulary))
    told = {name: json.loads(files[name]) for name in files if isinstance(files[name], bytes)
            and name.endswith(".json")}  # fmt: skip
    assert told["added_tokens.json"] == {"b": 1, "new": 3}
    assert told["tokenizer_config.json"] == {
        "added_tokens_decoder": {**known, "3": {"special": True, "content": "new"}},
        "chat_template": "{{ x }}" if asked else "{{ y }}",
        "pad_token": "b",
    }
    assert [entry["id"] for entry in told["tokenizer.json"]["added_tokens"]] == [3]
    assert files["special_tokens_map.json"] == tmp_path / "a" / "special_tokens_map.json"
    (tmp_path / "a" / "added_tokens.json").unlink()
    bare = files_of(replace(plan(COPY, model), vocabulary=vocabulary))
    assert "added_tokens.json" not in bare, "it would be the only list of these"


# Chat templates

TEMPLATES = ["additional_chat_templates/tools.jinja", "chat_template.jinja", "chat_template.json"]
BESIDE = ["merges.txt", "tokenizer.json", "tokenizer_config.json", *TEMPLATES]


def written_model(folder: Path, *names: str) -> Source:
    """Write a model's files, each of which has the model's name."""
    for name in ("config.json", "generation_config.json", *names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"of": folder.name}))
    return replace(llama(folder.name), folder=folder)


def read_by(host: Source, reference: Source, new: tuple[NewToken, ...] = ()) -> OutputVocabulary:
    facts = {"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}}}
    found = united("abc", "cba", new=new, facts=facts)
    hosts, references = replace(found.host, source=host), replace(found.reference, source=reference)
    return replace(found, host=hosts, reference=references)


def owners(found: Plan) -> dict[str, Any]:
    """Return the model that each tokenizer file is copied from, or the content of a new file."""
    files = files_of(found)
    names = [n for n in files if "token" in n or "template" in n or n == "merges.txt"]
    return {
        name: json.loads(content)
        if isinstance(content := files[name], bytes)
        else json.loads(content.read_text())["of"]
        for name in names
    }


def test_every_chat_template_is_the_hosts(tmp_path: Path) -> None:
    reference = written_model(tmp_path / "a", *BESIDE, "additional_chat_templates/rag.jinja")
    host = written_model(tmp_path / "b", *BESIDE)
    found = replace(plan(COPY, reference), vocabulary=read_by(host, reference))
    assert owners(found) == dict.fromkeys(BESIDE, "b")
    bare = written_model(tmp_path / "c", "tokenizer.json")
    found = replace(plan(COPY, reference), vocabulary=read_by(bare, reference))
    assert owners(found) == {"tokenizer.json": "c"}


def test_chat_templates_stay_beside_a_vocabulary_that_grows(tmp_path: Path) -> None:
    """Other files of the tokenizer cannot be kept consistent with plain tokens."""
    model = written_model(tmp_path / "a", *BESIDE)
    found = replace(plan(COPY, model), vocabulary=read_by(model, model, new=(PLAIN,)))
    whose = owners(found)
    assert {name: whose[name] for name in TEMPLATES} == dict.fromkeys(TEMPLATES, "a")
    assert whose.keys() == {*TEMPLATES, "tokenizer.json", "tokenizer_config.json"}


@pytest.mark.parametrize("new", [(), (ADDED,), (PLAIN,)], ids=["none", "added", "plain"])
def test_a_template_that_is_asked_for_is_the_only_one(
    new: tuple[NewToken, ...], tmp_path: Path
) -> None:
    reference = written_model(tmp_path / "a", *BESIDE)
    host = written_model(tmp_path / "b", *BESIDE)
    asked = plan(COPY + "chat_template: '{{ x }}'\n", reference)
    whose = owners(replace(asked, vocabulary=read_by(host, reference, new)))
    assert not whose.keys() & set(TEMPLATES)
    assert whose["tokenizer_config.json"] == {"of": "b", "chat_template": "{{ x }}"}
    alone = owners(asked)
    assert alone.pop("tokenizer_config.json") == {"of": "a", "chat_template": "{{ x }}"}
    assert alone == {"merges.txt": "a", "tokenizer.json": "a"}


# The card


def test_the_card_says_of_what_it_is_made() -> None:
    recipe = (
        "# ````\nmerge_method: ties\nbase_model: b\nparameters: {weight: 1, density: 0.5}\n"
        "models: [{model: a}]\n"
    )
    hub = replace(llama("a"), kind="hub", revision="0" * 40)
    card = model_card(plan(recipe, hub, llama("b")), "merged", {"b": "f00d"}, "a-library")
    head, _, text = card.removeprefix("---\n").partition("---\n")
    assert head.splitlines()[:8] == [
        "base_model:", "- a", "base_model_relation: merge", "library_name: a-library", "tags:",
        "- mergekit", "- merge", "- resumerge",
    ]  # fmt: skip
    noted = yaml.safe_load(head)["resumerge"]
    assert noted["options"] == {"seed": 0, "shard_size": 1 << 30}
    assert noted["models"] == [
        {"model": "a", "revision": "0" * 40},
        {"model": "b", "content": "f00d"},
    ]
    assert {"resumerge", "numerics", "block", "merge method ties"} == noted["versions"].keys()
    lines = text.splitlines()
    assert lines[0] == "# merged"
    assert lines[2].startswith("A merge of 1 model onto `b` with the **ties** method (")
    assert f"- [a](https://huggingface.co/a) (commit `{'0' * 40}`)" in lines
    [local] = [line for line in lines if line.startswith("- `b`")]
    assert "checksum of what this recipe reads of it: `f00d`" in local and local.endswith(
        ", base model, config and tokenizer"
    )
    assert lines[-len(recipe.splitlines()) - 2 :] == ["`````yaml", *recipe.splitlines(), "`````"]
    alone = model_card(plan(COPY, llama("a")), "x", {})
    assert "base_model" not in alone and "A merge of 1 model with" in alone
    assert "## Method" not in alone


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("my_model-7B", "my_model-7B"),
        ("__init__", r"\_\_init\_\_"),
        ("<img src=x>", r"\<img src=x\>"),
        ("[a](b) *c* `d`", r"\[a\](b) \*c\* \`d\`"),
        ("two\nlines", r"two\\nlines"),
    ],
)
def test_a_name_is_text_in_the_card(name: str, title: str) -> None:
    lines = model_card(plan(COPY, llama("a")), name, {}).splitlines()
    assert f"# {title}" in lines


def test_a_path_with_backticks_is_a_code_span() -> None:
    recipe = "merge_method: passthrough\nmodels: [{model: './`` `a'}]\n"
    assert "- ``` ./`` `a ``` (a local" in model_card(plan(recipe, llama("./`` `a")), "x", {})
