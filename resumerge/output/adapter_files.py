"""The files beside the tensors of an output that is an adapter, as peft and the Hub read them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from resumerge.extraction import MadeAdapter
from resumerge.methods import METHODS
from resumerge.output.card import link_and_revision
from resumerge.output.provenance import KEY, Provenance
from resumerge.output_path import CARD
from resumerge.planning.plan import Plan
from resumerge.printable import code_span, escaped, in_fence
from resumerge.sizes import counted
from resumerge.sources import MetadataCache, Source, fetch, list_companions
from resumerge.sources.companions import is_tokenizer_file
from resumerge.tokenizers.companion_content import companion

HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)
"""The pattern of names of Hub repos. The name of a local folder can also match it."""


def adapter_files(
    plan: Plan,
    made: MadeAdapter,
    name: str,
    metadata: MetadataCache,
    contents: Mapping[str, str],
    section: Sequence[str],
    *,
    offline: bool = False,
) -> Iterator[tuple[str, bytes | Path]]:
    """Yield every file of an adapter except its tensors, adapter_config.json last.

    The tokenizer is included if the vocabulary is not the base model's.

    Args:
        plan: the plan that makes the adapter, for its sources and its recipe.
        made: the facts about the adapter: its config, ranks and vocabulary.
        name: the adapter's name, for the card.
        metadata: the metadata cache of remote files, for those that have to be fetched.
        contents: the checksum of the bytes that were read of each local model, by the text of its
            reference.
        section: the lines of the card about the matrices.
        offline: whether the network must not be used.

    Yields:
        the name of each file, and its bytes or the file to copy.
    """
    if made.vocabulary is not None:
        model = plan.reference_model.carrier
        names = [file for file in list_companions(model) if is_tokenizer_file(file)]
        fetch(model, names, metadata, offline=offline)
        yield from ((file, companion(model, file)) for file in names)
    yield CARD, _card(plan, made, name, contents, section).encode()
    config = json.dumps(dict(made.config), indent=2, ensure_ascii=False) + "\n"
    yield "adapter_config.json", config.encode()


def _card(
    plan: Plan, made: MadeAdapter, name: str, contents: Mapping[str, str], section: Sequence[str]
) -> str:
    is_combined = plan.recipe.has_method
    base = made.config["base_model_name_or_path"] if is_combined else _base_on_the_hub(plan)
    bases_on_hub = [base] if base and HUB_NAME.fullmatch(base) else []
    metadata = {
        **({"base_model": bases_on_hub, "base_model_relation": "adapter"} if bases_on_hub else {}),
        "library_name": "peft",
        "tags": ["lora", "mergekit", "resumerge"],
        KEY: Provenance.of(plan, contents).as_metadata(),
    }
    lines = [
        "---",
        yaml.safe_dump(metadata, sort_keys=False).strip(),
        "---",
        f"# {escaped(name)}",
        "",
        *(_combined(plan, base, contents) if is_combined else _extracted(plan, contents)),
        "",
        *section,
    ]
    if made.saved:
        lines += ["## Saved whole", "", *(f"- {escaped(name)}" for name in made.saved), ""]
    if made.vocabulary is not None:
        lines += [
            f"The vocabulary has {made.vocabulary[1]} rows, in the base model "
            f"{made.vocabulary[0]}: before the adapter is loaded, call "
            f"`model.resize_token_embeddings({made.vocabulary[1]})`.",
            "",
        ]
    return "\n".join([*lines, "## Recipe", "", *in_fence(plan.recipe.text, "yaml"), ""])


def _base_on_the_hub(plan: Plan) -> str | None:
    """Return the Hub name of an extracted adapter's base model; None if it is not on the Hub."""
    base = _base_of(plan)
    return base.ref.name if base.kind == "hub" else None


def _base_of(plan: Plan) -> Source:
    """Return the base model of an extraction."""
    return next(source for source in plan.sources if source.ref == plan.recipe.base_model)


def _extracted(plan: Plan, contents: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the card about the models of an extracted adapter."""
    yield (
        "A LoRA adapter that was extracted with resumerge: on the base model it comes as near to "
        "the other model as matrices of its ranks can."
    )
    yield ""
    yield f"- model: {link_and_revision(plan.reference_model, contents)}"
    yield f"- base model: {link_and_revision(_base_of(plan), contents)}"


def _combined(plan: Plan, base: str | None, contents: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the card about the adapters that a combined adapter was made from."""
    method = METHODS[plan.recipe.merge_method]
    yield (
        f"A LoRA adapter that was combined of {counted(len(plan.sources), 'adapter')} with the "
        f"**{method.name}** method ({method.summary}), with resumerge."
    )
    yield ""
    yield from (f"- adapter: {link_and_revision(source, contents)}" for source in plan.sources)
    if base:
        yield f"- base model, as the first of them names it: {code_span(base)}"
    if method.papers:
        yield ""
        yield from (f"- [{paper.title}]({paper.url})" for paper in method.papers)
