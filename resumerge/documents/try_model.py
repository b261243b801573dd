"""``resumerge try``: text that a finished model generates, and how well it predicts a text."""

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
"""The default number of tokens to generate."""

CHARACTERS = 8000
"""The number of characters that are predicted, from the beginning of a text.

For a model of 7 B parameters this takes minutes on two cores.
"""

WINDOW = 512
"""The most tokens of a window. The prediction in a window does not use earlier tokens."""

LIBRARIES = ("torch", "transformers")
EXTRA = "pip install 'resumerge[mixtures]'"

Report = Callable[[str], None]
"""A function that is called with a description of the next step."""


@dataclass(frozen=True)
class Fit:
    """The quality of a model's prediction of a text.

    Args:
        model: the model, as the recipe names it; for the merged model, its output.
        perplexity: ``exp`` of the mean loss of a token in nats; None if it is not finite.
        bits_per_byte: the loss per byte of the text in bits, comparable between tokenizers; None
            if the loss is not finite.
        tokens: the number of tokens that were predicted.
    """

    model: str
    perplexity: float | None
    bits_per_byte: float | None
    tokens: int


@dataclass(frozen=True)
class TryResult:
    """The result of trying a model.

    Args:
        output: the model's folder.
        prompt: the text that the model continued.
        text: the text that the model generated.
        tokens: the number of tokens of `text`.
        finite: whether all logits were finite.
        missing: names of tensors that transformers did not find and initialised at random.
        fits: the fits of the merged model and of each of its sources; empty without a text file.
        characters: the number of characters that were predicted, from the beginning of the file.
        notes: messages for the user, such as on sources that are not compared.
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
    """A source of the merged model: its name in the recipe, and its folder or repo."""

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
) -> TryResult:
    """Load a finished model on the CPU, continue a prompt, and measure how well it predicts a text.

    Decoding is greedy. Only one model is in memory at a time. Nothing is written or downloaded; the
    result has a note for each source that is not on this machine.

    Args:
        out: the model's folder.
        prompt: the text to continue.
        runs: the folder of all runs, one of which has the model's sources.
        text: a file. The model and its sources predict its first `CHARACTERS` characters.
        tokens: the largest number of tokens to generate.
        report: called with a description of the next step.

    Raises:
        InputError: transformers is not installed, or cannot load or compute the model; the model
            does not exist or is not finished; or the text cannot be read.
        Resumable: the model does not fit into the memory that is free now.
    """
    _check_libraries()
    run = _finished_run(out, runs)
    text_to_predict = None if text is None else _beginning(text)
    notes: list[str] = []
    report(f"loading {out}")
    with _refusing(out):
        merged_model = _Loaded(str(out.absolute()))
        report("generating")
        continuation, token_count, is_finite = merged_model.generate(prompt, tokens)
    fits = []
    if text_to_predict is not None:
        report(f"{out} reads the text")
        with _refusing(out):
            fits = [merged_model.fit(str(out), text_to_predict)]
    missing_names = merged_model.missing
    del merged_model
    if text_to_predict is not None:
        source_fits, source_notes = _fits_of_sources(
            _sources(run, out, notes), text_to_predict, report
        )
        fits += source_fits
        notes += source_notes
        if len({fit.tokens for fit in fits}) > 1:
            notes.append("Tokenizers differ: compare the bits for each byte, not the perplexities")
    character_count = len(text_to_predict or "")
    return TryResult(
        str(out),
        prompt,
        continuation,
        token_count,
        is_finite,
        missing_names,
        fits,
        character_count,
        notes,
    )


class _Loaded:
    """A causal language model of transformers on the CPU, in the dtypes of its files.

    Args:
        place: a folder, or a repo whose files are in the Hub's cache.
        revision: the repo's commit; None for a folder.

    Raises:
        InputError: the folder has no tokenizer.
        Resumable: the weights do not fit into the memory that is free.
    """

    def __init__(self, place: str, revision: str | None = None) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        _check_memory(Path(place))
        _check_tokenizer(Path(place))
        loading_options = {
            "revision": revision,
            "local_files_only": True,
            "trust_remote_code": False,
        }
        with _quiet():
            self.tokenizer = AutoTokenizer.from_pretrained(place, **loading_options)
            self.model, loading_info = AutoModelForCausalLM.from_pretrained(
                place, torch_dtype="auto", output_loading_info=True, **loading_options
            )
        self.model.eval()
        self.missing = sorted(loading_info["missing_keys"])

    def generate(self, prompt: str, tokens: int) -> tuple[str, int, bool]:
        """Continue a prompt.

        Returns:
            The text, its number of tokens, and whether all logits were finite.
        """
        import torch

        prompt_tokens = torch.tensor([self._encode(prompt)])
        generation = self.model.generate(
            prompt_tokens,
            attention_mask=torch.ones_like(prompt_tokens),
            max_new_tokens=tokens,
            do_sample=False,
            num_beams=1,
            output_logits=True,
            return_dict_in_generate=True,
            pad_token_id=self.tokenizer.pad_token_id or 0,
        )
        new_tokens = generation.sequences[0, prompt_tokens.shape[1] :]
        with torch.no_grad():
            logits = [self.model(prompt_tokens).logits, *generation.logits]
        is_finite = all(bool(torch.isfinite(step).all()) for step in logits)
        return (
            self.tokenizer.decode(new_tokens, skip_special_tokens=True),
            len(new_tokens),
            is_finite,
        )

    def fit(self, name: str, text: str) -> Fit:
        """Return how well the model predicts a text, in windows of at most `WINDOW` tokens."""
        import torch

        tokens = torch.tensor(self._encode(text))
        total_loss, count = 0.0, len(tokens) - 1
        window = min(WINDOW, getattr(self.model.config, "max_position_embeddings", WINDOW))
        with torch.no_grad():
            for start in range(0, count, window - 1):
                window_tokens = tokens[start : start + window]
                logits = self.model(window_tokens[None]).logits[0, :-1].float()
                total_loss += float(
                    torch.nn.functional.cross_entropy(logits, window_tokens[1:], reduction="sum")
                )
        if count < 1 or not math.isfinite(total_loss):
            return Fit(name, None, None, max(count, 0))
        mean_loss = total_loss / count
        bits_per_byte = total_loss / math.log(2) / len(text.encode())
        return Fit(name, math.exp(mean_loss) if mean_loss < 700 else None, bits_per_byte, count)

    def _encode(self, text: str) -> list[int]:
        """Return a text's tokens, with the begin-of-text token first if the tokenizer has one."""
        begin = self._begin
        return [*begin, *self.tokenizer(text, add_special_tokens=False)["input_ids"]]

    @cached_property
    def _begin(self) -> list[int]:
        first = self.tokenizer.bos_token_id
        return [] if first is None else [first]


def _fits_of_sources(
    sources: Sequence[_Source], text: str, report: Report
) -> tuple[list[Fit], list[str]]:
    """Return the fit of each source, and a note for each source that cannot be opened."""
    fits, notes = [], []
    for source in sources:
        report(f"{source.name} reads the text")
        try:
            with _refusing(source.name):
                fits.append(_Loaded(source.place, source.revision).fit(source.name, text))
        except ResumergeError as error:
            reason = error.problems[0].found if hasattr(error, "problems") else str(error)
            notes.append(f"{source.name} is not compared: {reason}")
    return fits, notes


def _sources(run: Path | None, out: Path, notes: list[str]) -> list[_Source]:
    """Return the models of a run that transformers can open. Add a note for each other model."""
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
            is_lora = row["kind"] == "lora"
            limitation = (
                "compared without its adapter" if is_lora else "not compared: it is in a bucket"
            )
            notes.append(f"{row['model']} is {limitation}")
    return sources


def _check_libraries() -> None:
    missing_libraries = [name for name in LIBRARIES if find_spec(name) is None]
    if missing_libraries:
        raise refuse(
            "`resumerge try` loads the model with transformers",
            expected=f"the libraries {' and '.join(LIBRARIES)}",
            found=f"no {' and no '.join(missing_libraries)}",
            fix=EXTRA,
        )


def _finished_run(out: Path, runs: RunStore) -> Path | None:
    """Return the folder of the run that made a model; None if this machine has no such run.

    Raises:
        InputError: `out` is not a model for transformers, or the model is not finished.
    """
    runs_of_model = runs.of_output(out)
    if runs_of_model and (state := read_run(runs_of_model[-1] / LEDGER_FILE, "state")) != "done":
        resume_command = f"`resumerge resume {runs_of_model[-1].name}`"
        raise refuse(
            "The model is not finished", where=out, found=f"its run is {state}", fix=resume_command
        )
    if not (out / "config.json").is_file():
        raise refuse(
            "There is no model to try",
            where=out,
            expected="the folder of a finished model, with a config.json",
            found="a file" if out.is_file() else "no config.json" if out.is_dir() else "no folder",
        )
    return runs_of_model[-1] if runs_of_model else None


def _beginning(text: Path) -> str:
    """Return the first `CHARACTERS` characters of a file.

    Raises:
        InputError: the file cannot be read, or is empty.
    """
    try:
        with text.open(encoding="utf-8", errors="replace") as file:
            text_beginning = file.read(CHARACTERS)
    except OSError as error:
        raise refuse(
            "The text cannot be read", where=text, expected="a file", found=error.strerror or ""
        ) from error
    if not text_beginning.strip():
        raise refuse("The text is empty", where=text, expected="some sentences")
    return text_beginning


def _check_tokenizer(folder: Path) -> None:
    if folder.is_dir() and not is_tokenizer(file.name for file in folder.iterdir()):
        raise refuse(
            "The model has no tokenizer",
            where=folder,
            expected="tokenizer.json, or another file that a tokenizer is made of",
            fix="save the tokenizer that the model was trained with into this folder",
        )


def _check_memory(folder: Path) -> None:
    weight_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    free_bytes = measure_memory().available
    if weight_bytes > free_bytes:
        raise Resumable(
            Reason.MEMORY,
            f"Not enough memory to load {folder}: {show_size(weight_bytes)} of weights, and "
            f"{show_size(free_bytes)} are available. Close other programs, or try it on another "
            "machine",
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from writing to the terminal inside the context."""
    from transformers.utils import logging

    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
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
