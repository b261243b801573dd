"""Promise: a damaged companion is refused or reported before anything is computed."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
from loopback_hub import Hub
from merging import Told, merge, working_in
from privileges import unprivileged
from tiny_models import LLAMA, llama_shapes, random_tensors, write_family, write_model

import resumerge
from resumerge.engine.evaluation.evaluator import Evaluator
from resumerge.engine.lifecycle.session import Session
from resumerge.errors import InputError, Resumable
from resumerge.options import Options
from resumerge.output.companion_damage import PARSED, companion_damage

RECIPE = "merge_method: linear\nparameters: {weight: 1}\nmodels: [{model: a}, {model: b}]\n"
UNION = RECIPE + "tokenizer_source: union\n"
TEMPLATE = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """Make the models `a` and `b`, whose tokenizers differ in a token."""
    folder = tmp_path / "models"
    for seed, name in enumerate("ab"):
        config = {**LLAMA, "num_hidden_layers": 1}
        write_model(folder / name, random_tensors(llama_shapes(config), seed), config)
        vocab = {f"t{n}": n for n in range(30 + seed)}
        facts = {"model": {"type": "WordLevel", "vocab": vocab}}
        (folder / name / "tokenizer.json").write_text(json.dumps(facts))
        (folder / name / "generation_config.json").write_text('{"eos_token_id": 3}')
    return folder


def planned(models: Path, recipe: str) -> resumerge.api.DisplayedPlan:
    (models / "recipe.yaml").write_text(recipe)
    with working_in(models):
        return resumerge.plan("recipe.yaml")


@pytest.mark.parametrize(
    ("file", "content"),
    [("generation_config.json", '{"eos_token_'), ("added_tokens.json", "[]")],
)
def test_what_has_to_be_changed_is_refused_by_plan_and_run(
    file: str, content: str, models: Path, tmp_path: Path
) -> None:
    (models / "a" / file).write_text(content)
    extra = 'tokenizer: {tokens: {"[new]": {source: {kind: zero}}}}\n'
    [problem] = planned(models, RECIPE + extra)["problems"]
    assert problem["where"] == str(models / "a" / file)
    with pytest.raises(InputError, match=file):
        merge(models, RECIPE + extra, tmp_path / "out")
    assert not (tmp_path / "out").exists() and not (tmp_path / "out.state").exists()


def test_a_run_that_exists_is_stopped_before_it_computes_and_continues_when_it_is_mended(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Evaluator, *words: object) -> None:
        raise OSError("a disk that fails")

    with monkeypatch.context() as patched:
        patched.setattr(Evaluator, "compute", broken)
        with pytest.raises(Resumable):
            merge(models, UNION, tmp_path / "out")
    file = models / "a" / "generation_config.json"
    whole = file.read_text()
    file.write_text("{")
    session = Session(Options(state_dir=tmp_path / "out.state"))
    with working_in(models), pytest.raises(Resumable, match=r"generation_config\.json"):
        session.resume()
    with working_in(models):
        [run] = resumerge.status(state_dir=tmp_path / "out.state")["runs"]
    assert run["units"]["committed"] == 0 and len(run["attempts"]) == 1
    file.write_text(whole)
    out = merge(models, UNION, tmp_path / "out")
    assert json.loads((out / "generation_config.json").read_text()) == {"eos_token_id": 3}


def test_one_that_is_damaged_while_the_run_works_leaves_it_resumable(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = models / "a" / "generation_config.json"
    whole = file.read_text()
    monkeypatch.setattr(Told, "progressed", lambda self, progress: file.write_text("{"))
    config = tmp_path / "recipe.yaml"
    config.write_text(UNION)
    options = Options(state_dir=tmp_path / "state")
    with working_in(models), pytest.raises(Resumable, match=r"generation_config\.json"):
        Session(options, Told()).run(config, tmp_path / "out")
    file.write_text(whole)
    with working_in(models):
        Session(options).resume()
    assert (tmp_path / "out" / "config.json").exists()


def pieces() -> bytes:
    trained = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three", "four five six"] * 9),
        model_writer=trained,
        model_type="bpe",
        vocab_size=40,
        minloglevel=2,
    )
    return trained.getvalue()


def filling(nbytes: int) -> bytes:
    return json.dumps({"model": {"vocab": {f"token{n}": n for n in range(nbytes // 16)}}}).encode()


WHOLE: dict[str, Callable[[], bytes]] = {
    "tokenizer.json": lambda: filling(1000),
    "vocab.json": lambda: filling(2 * PARSED),
    "merges.txt": lambda: "a b\né f\n".encode(),
    "tokenizer.model": pieces,
    "chat_template.jinja": TEMPLATE.encode,
    "additional_chat_templates/tools.jinja": TEMPLATE.encode,
    "preprocessor_config.json": lambda: b'{"size": 8}',
    "modeling_own.py": lambda: "class Own:\n    é = 1\n".encode(),
}
DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "cut off": lambda whole: whole[: len(whole) * 2 // 3],
    "cut at the last byte": lambda whole: whole[:-1],
    "zeros": lambda whole: bytes(len(whole)),
    "empty": lambda whole: b"",
    "not UTF-8": lambda whole: whole[:-2] + b"\xff" + whole[-2:],
}
INVISIBLE = {
    *(
        (name, damage)
        for name in ("merges.txt", "modeling_own.py")
        for damage in DAMAGES
        if "cut" in damage
    ),
    ("modeling_own.py", "empty"),
    ("vocab.json", "cut at the last byte"),
    ("vocab.json", "not UTF-8"),
}
"""Damage that the file alone does not show, or that takes too long or too much memory to find."""


@pytest.mark.parametrize("name", WHOLE)
def test_damage_of_what_is_copied_is_told_before_and_after(name: str, tmp_path: Path) -> None:
    models = write_family(tmp_path)
    whole = WHOLE[name]()
    path = models / "math" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(whole)
    recipe = "merge_method: passthrough\nmodels: [{model: math}]\n"
    assert not any("damaged" in note for note in planned(models, recipe)["notes"])
    for damage, spoil in DAMAGES.items():
        path.write_bytes(spoil(whole))
        told = companion_damage(path, name)
        assert (told is None) == ((name, damage) in INVISIBLE), damage
    path.write_bytes(DAMAGES["zeros"](whole))
    [note] = [note for note in planned(models, recipe)["notes"] if "damaged" in note]
    assert str(path) in note
    reporter = Told()
    config = models / "recipe.yaml"
    with working_in(models):
        Session(Options(state_dir=tmp_path / "state"), reporter).run(config, tmp_path / "out")
    assert reporter.notes[0] == "done" and note in reporter.notes
    assert (tmp_path / "out" / name).read_bytes() == path.read_bytes()


def test_a_large_file_is_not_parsed(tmp_path: Path) -> None:
    """Parsing a large tokenizer.json would take more memory than the merge."""
    path = tmp_path / "tokenizer.json"
    path.write_bytes(filling(8_000_000))
    tracemalloc.start()
    assert companion_damage(path, path.name) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * path.stat().st_size


def test_one_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    write_family(tmp_path)
    file = tmp_path / "math" / "preprocessor_config.json"
    file.write_text("{}")
    file.chmod(0)
    (tmp_path / "recipe.yaml").write_text("merge_method: passthrough\nmodels: [{model: math}]\n")
    code, said = unprivileged(["run", "recipe.yaml", "out", "--no-supervise"], tmp_path)
    assert code == 2 and str(file) in said and "Permission denied" in said
    assert not (tmp_path / "out").exists() and not (tmp_path / "state").exists()
    code, said = unprivileged(["plan", "recipe.yaml"], tmp_path)
    assert code == 2 and str(file) in said


def test_files_of_the_hub_are_checked_when_they_have_arrived_and_before_the_weights(
    hub: Hub, models: Path, tmp_path: Path
) -> None:
    (models / "a" / "generation_config.json").write_text("{")
    for name in "ab":
        files = {path.name: path.read_bytes() for path in (models / name).iterdir()}
        hub.commit(f"org/{name}", files)
    recipe = UNION.replace("model: a", "model: org/a").replace("model: b", "model: org/b")
    assert planned(models, recipe)["problems"] == []
    assert "generation_config.json" not in hub.files_served()
    with pytest.raises(InputError, match=r"generation_config\.json"):
        merge(models, recipe, tmp_path / "out")
    assert not list(hub.home.rglob("model.safetensors")), "only its header was read"
    assert not (tmp_path / "out").exists()
    assert not list((tmp_path / "out.state").rglob("ledger.db"))
    [problem] = planned(models, recipe)["problems"]  # now it is in the cache
    assert "generation_config.json" in problem["where"]
