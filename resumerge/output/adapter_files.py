"""The files beside the tensors of an extracted adapter, as peft and the Hub read them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import yaml

from resumerge.backup_names import CARD
from resumerge.extraction import MadeAdapter
from resumerge.output.card import described
from resumerge.output.provenance import KEY, Provenance
from resumerge.planning.plan import Plan
from resumerge.printable import escaped, in_fence
from resumerge.sources import MetadataCache, fetch, list_companions
from resumerge.sources.companions import is_tokenizer_file


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
    """Yield every file of an adapter but its tensors, adapter_config.json last.

    The tokenizer comes along where the vocabulary is not the base model's.

    Args:
        plan: the plan of the extraction.
        made: the adapter.
        name: its name, for the card.
        metadata: the metadata cache of remote files.
        contents: the hash of what was read of each local model, by the text of its reference.
        section: the lines of the card on the matrices.
        offline: do not use the network.
    """
    if made.vocabulary is not None:
        model = plan.reference_model.base or plan.reference_model
        names = [file for file in list_companions(model) if is_tokenizer_file(file)]
        fetch(model, names, metadata, offline=offline)
        yield from ((file, model.folder / file) for file in names)
    yield CARD, _card(plan, made, name, contents, section).encode()
    config = json.dumps(dict(made.config), indent=2, ensure_ascii=False) + "\n"
    yield "adapter_config.json", config.encode()


def _card(
    plan: Plan, made: MadeAdapter, name: str, contents: Mapping[str, str], section: Sequence[str]
) -> str:
    base = next(source for source in plan.sources if source.ref == plan.recipe.base_model)
    hub = [base.ref.name] if base.kind == "hub" else []
    metadata = {
        **({"base_model": hub, "base_model_relation": "adapter"} if hub else {}),
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
        "A LoRA adapter that was extracted with resumerge: on the base model it comes as near to "
        "the other model as matrices of its ranks can.",
        "",
        f"- model: {described(plan.reference_model, contents)}",
        f"- base model: {described(base, contents)}",
        "",
    ]
    lines += section
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
