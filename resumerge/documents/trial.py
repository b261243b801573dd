"""``resumerge try``: a finished model generates text, and its prediction of a text is measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from resumerge.errors import Reason, Resumable, ResumergeError, refuse
from resumerge.host.memory import measure_memory
from resumerge.ledger import LEDGER_FILE, Ledger, read_run
from resumerge.ledger.run_store import RunStore
from resumerge.sizes import show_size
from resumerge.tokenizers.origin import is_tokenizer

TOKENS = 20
"""The number of tokens to generate, if none is given."""

CHARACTERS = 8000
"""The number of characters at the beginning of a text that are predicted, which takes a model of
7 B parameters minutes on two cores."""

WINDOW = 512
"""The most tokens that are predicted together; a window does not see the tokens before it."""

LIBRARIES = ("torch", "transformers")
EXTRA = "pip install 'resumerge[mixtures]'"

Report = Callable[[str], None]
"""A function that is called with a description of the next step."""


@dataclass(frozen=True)
class Fit:
    """How well a model predicts a text.

    Args:
        model: the model, as the recipe names it; for the merged model, its output.
        perplexity: ``exp`` of the mean loss of a token; None if that is not finite.
        bits_per_byte: the loss per byte of the text in bits, comparable between tokenizers.
        tokens: the number of tokens that were predicted.
    """

    model: str
    perplexity: float | None
    bits_per_byte: float | None
    tokens: int


@dataclass(frozen=True)
class Trial:
    """The result of a trial.

    Args:
        output: the model's folder.
        prompt: the text that the model continued.
        text: the text that it generated.
        tokens: the number of tokens of `text`.
        finite: whether all logits were finite.
        missing: names of tensors that transformers did not find, and replaced by random ones.
        fits: the fits of the merged model and of each of its sources; empty without a text.
        characters: the number of characters that were predicted, from the file's beginning.
        notes: messages for the user.
    """

    output: str
    prompt: str
    text: str
    tokens: int
    finite: bool
    missing: Sequence[str]
    fits: Sequence[Fit]
    characters: int
    notes: Sequence[str]

    @property
    def sound(self) -> bool:
        """Whether no tensor of the model was missing, and all logits were finite."""
        return self.finite and not self.missing

    def as_json(self) -> dict[str, Any]:
        """Return the document of ``try --json``."""
        return {"sound": self.sound, **asdict(self)}


@dataclass(frozen=True)
class _Source:
    """A model to compare with: its name in the recipe, and where transformers finds it."""

    name: str
    place: str
    revision: str | None = None


def try_model(
    out: Path,
    prompt: str,
    runs: RunStore,
    text: Path | None = None,
    tokens: int = TOKENS,
    report: Report = lambda what: None,
) -> Trial:
    """Load a finished model on the CPU, continue a prompt, and measure how well it predicts a text.

    The most likely token is taken each time. One model is in memory at a time. Nothing is written,
    and nothing is downloaded: sources that are not on this machine are noted.

    Args:
        out: the model's folder.
        prompt: the text to continue.
        runs: the folder of all runs, one of which has the model's sources.
        text: a file whose first `CHARACTERS` characters are predicted, by the sources as well.
        tokens: the most tokens to generate.
        report: called with a description of the next step.

    Raises:
        InputError: transformers is not installed; there is no finished model, or transformers
            cannot load or compute it; or the text cannot be read.
        Resumable: there is too little memory now.
    """
    _check_libraries()
    run = _finished_run(out, runs)
    predicted = None if text is None else _beginning(text)
    notes: list[str] = []
    report(f"loading {out}")
    with _refusing(out):
        loaded = _Loaded(str(out.absolute()))
        report("generating")
        generated, count, finite = loaded.generate(prompt, tokens)
    fits = []
    if predicted is not None:
        report(f"{out} reads the text")
        with _refusing(out):
            fits = [loaded.fit(str(out), predicted)]
    missing = loaded.missing
    del loaded
    if predicted is not None:
        others, why_not = _fits_of_sources(_sources(run, out, notes), predicted, report)
        fits += others
        notes += why_not
        if len({fit.tokens for fit in fits}) > 1:
            notes.append("Tokenizers differ: compare the bits for each byte, not the perplexities")
    characters = len(predicted or "")
    return Trial(str(out), prompt, generated, count, finite, missing, fits, characters, notes)


class _Loaded:
    """A causal language model of transformers on the CPU, in the dtypes of its files.

    Args:
        place: a folder, or a repo of which the cache has a snapshot.
        revision: the repo's commit.

    Raises:
        Resumable: its weights do not fit into the memory that is free.
    """

    def __init__(self, place: str, revision: str | None = None) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        _check_memory(Path(place))
        _check_tokenizer(Path(place))
        how = {"revision": revision, "local_files_only": True, "trust_remote_code": False}
        with _quiet():
            self.tokenizer = AutoTokenizer.from_pretrained(place, **how)
            self.model, loading_info = AutoModelForCausalLM.from_pretrained(
                place, torch_dtype="auto", output_loading_info=True, **how
            )
        self.model.eval()
        self.missing = sorted(loading_info["missing_keys"])

    def generate(self, prompt: str, tokens: int) -> tuple[str, int, bool]:
        """Continue a prompt.

        Returns:
            the text, its number of tokens, and whether all logits were finite.
        """
        import torch

        prompt_tokens = torch.tensor([self._encode(prompt)])
        generated = self.model.generate(
            prompt_tokens,
            attention_mask=torch.ones_like(prompt_tokens),
            max_new_tokens=tokens,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=self.tokenizer.pad_token_id or 0,
        )
        new = generated.sequences[0, prompt_tokens.shape[1] :]
        with torch.no_grad():
            logits = [self.model(prompt_tokens).logits, *generated.logits]
        finite = all(bool(torch.isfinite(step).all()) for step in logits)
        return self.tokenizer.decode(new, skip_special_tokens=True), len(new), finite

    def fit(self, name: str, text: str) -> Fit:
        """Return how well the model predicts a text, window by window."""
        import torch

        tokens = torch.tensor(self._encode(text))
        loss, count = 0.0, len(tokens) - 1
        window = min(WINDOW, getattr(self.model.config, "max_position_embeddings", WINDOW))
        with torch.no_grad():
            for start in range(0, count, window - 1):
                part = tokens[start : start + window]
                logits = self.model(part[None]).logits[0, :-1].float()
                loss += float(torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum"))
        if count < 1 or not math.isfinite(loss):
            return Fit(name, None, None, max(count, 0))
        mean = loss / count
        bits = loss / math.log(2) / len(text.encode())
        return Fit(name, math.exp(mean) if mean < 700 else None, bits, count)

    def _encode(self, text: str) -> list[int]:
        """Return a text's tokens, after the tokenizer's begin-of-text token, if it has one."""
        begin = self._begin
        return [*begin, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    @cached_property
    def _begin(self) -> list[int]:
        first = self.tokenizer.bos_token_id
        return [] if first is None else [first]


def _fits_of_sources(
    sources: Sequence[_Source], text: str, report: Report
) -> tuple[list[Fit], list[str]]:
    """Return how well each source predicts a text, and a note for each that cannot be opened."""
    fits, notes = [], []
    for source in sources:
        report(f"{source.name} reads the text")
        try:
            with _refusing(source.name):
                fits.append(_Loaded(source.place, source.revision).fit(source.name, text))
        except ResumergeError as error:
            why = error.problems[0].found if hasattr(error, "problems") else str(error)
            notes.append(f"{source.name} is not compared: {why}")
    return fits, notes


def _sources(run: Path | None, out: Path, notes: list[str]) -> list[_Source]:
    """Return the models of a run that transformers may open; add a note for each other model."""
    if run is None:
        notes.append(f"The sources are not known: the state folder has no ledger of {out}")
        return []
    with closing(Ledger(run / LEDGER_FILE)) as ledger:
        rows = ledger.sources()
    adapters = {row["model"].rpartition("+")[2] for row in rows if row["kind"] == "lora"}
    sources = []
    for row in rows:
        if row["model"] in adapters:
            continue
        if row["kind"] == "local":
            sources.append(_Source(row["model"], row["folder"]))
        elif row["kind"] == "hub":
            name = row["model"].partition("@")[0]
            sources.append(_Source(row["model"], name, row["revision"]))
        else:
            lora = row["kind"] == "lora"
            how = "compared without its adapter" if lora else "not compared: it is in a bucket"
            notes.append(f"{row['model']} is {how}")
    return sources


def _check_libraries() -> None:
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if missing:
        raise refuse(
            "`resumerge try` loads the model with transformers",
            expected=f"the libraries {' and '.join(LIBRARIES)}",
            found=f"no {' and no '.join(missing)}",
            fix=EXTRA,
        )


def _finished_run(out: Path, runs: RunStore) -> Path | None:
    """Return the folder of the run that made a model; None if this machine has no such run.

    Raises:
        InputError: there is no model for transformers, or it is not finished.
    """
    made_by = runs.of_output(out)
    if made_by and (state := read_run(made_by[-1] / LEDGER_FILE, "state")) != "done":
        mend = f"`resumerge resume {made_by[-1].name}`"
        raise refuse("The model is not finished", where=out, found=f"its run is {state}", fix=mend)
    if not (out / "config.json").is_file():
        raise refuse(
            "There is no model to try",
            where=out,
            expected="the folder of a finished model, with a config.json",
            found="a file" if out.is_file() else "no config.json" if out.is_dir() else "no folder",
        )
    return made_by[-1] if made_by else None


def _beginning(text: Path) -> str:
    """Return the first characters of a file.

    Raises:
        InputError: it cannot be read, or is empty.
    """
    try:
        with text.open(encoding="utf-8", errors="replace") as file:
            beginning = file.read(CHARACTERS)
    except OSError as error:
        raise refuse(
            "The text cannot be read", where=text, expected="a file", found=error.strerror or ""
        ) from error
    if not beginning.strip():
        raise refuse("The text is empty", where=text, expected="some sentences")
    return beginning


def _check_tokenizer(folder: Path) -> None:
    if folder.is_dir() and not is_tokenizer(file.name for file in folder.iterdir()):
        raise refuse(
            "The model has no tokenizer",
            where=folder,
            expected="tokenizer.json, or another file that a tokenizer is made of",
            fix="save the tokenizer that the model was trained with into this folder",
        )


def _check_memory(folder: Path) -> None:
    needed = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    free = measure_memory().available
    if needed > free:
        raise Resumable(
            Reason.MEMORY,
            f"Not enough memory to load {folder}: {show_size(needed)} of weights, and "
            f"{show_size(free)} are available. Close other programs, or try it on another machine",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from writing to the terminal inside the context."""
    from transformers.utils import logging

    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def _refusing(where: object) -> Iterator[None]:
    """Refuse a model if transformers raises an error inside the context."""
    try:
        yield
    except (ResumergeError, MemoryError):
        raise
    except Exception as error:
        raise refuse(
            "transformers cannot load or compute the model",
            where=where,
            expected="a causal language model with its tokenizer",
            found=f"{type(error).__name__}: {' '.join(str(error).split())}"[:300],
        ) from error
