"""The model card: the method and its papers, the models and their revisions, and the recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import yaml

from resumerge.methods import METHODS
from resumerge.output.provenance import KEY, Provenance
from resumerge.planning.plan import Plan
from resumerge.planning.quantised.quantised_output import QuantisedOutput
from resumerge.printable import code_span, escaped, in_fence
from resumerge.recipe.references import HUB
from resumerge.recipe.types import OF_PROMPTS
from resumerge.sizes import counted
from resumerge.sources.types import Source


def model_card(
    plan: Plan,
    name: str,
    contents: Mapping[str, str],
    library: str | None = "transformers",
    section: Sequence[str] = (),
) -> str:
    """Return the content of the output's README.md, with metadata for the Hub.

    Args:
        plan: the plan of one model; for a model of a sweep, the plan of its variant.
        name: the model's name, for the title.
        contents: the checksum of the bytes that were read of each local model, by the text of its
            reference.
        library: the Hub's name of the library that loads the model; None if it is unknown.
        section: the lines of a section between the models and the recipe.
    """
    method = METHODS[plan.recipe.merge_method] if plan.recipe.has_method else None
    parts = [part for source in plan.own_sources for part in source.parts.values()]
    models = counted(len(plan.own_sources), "model")
    names_on_hub = list(dict.fromkeys(part.ref.name for part in parts if part.kind == "hub"))
    metadata = {
        **({"base_model": names_on_hub, "base_model_relation": "merge"} if names_on_hub else {}),
        **({"library_name": library} if library else {}),
        "tags": ["mergekit", "merge", *(["moe"] if plan.mixture else []), "resumerge"],
        KEY: Provenance.of(plan, contents).as_metadata(),
    }
    lines = [
        "---",
        yaml.safe_dump(metadata, sort_keys=False).strip(),
        "---",
        f"# {escaped(name)}",
        "",
        f"A merge of {_merged(plan)} with the **{method.name}** method ({method.summary}), made "
        "with resumerge."
        if method
        else f"A mixture of experts ({plan.method}) made of {models} with resumerge. "
        f"{_gates(plan)}",
        "",
    ]
    if method and method.papers:
        lines += ["## Method", ""]
        lines += [f"- [{paper.title}]({paper.url})" for paper in method.papers] + [""]
    lines += ["## Models", ""]
    for source in plan.own_sources:
        role_text = ", base model" if source.ref == plan.recipe.base_model else ""
        is_reference = source.number == _first_reference(plan)
        role_text += ", config and tokenizer" if is_reference and source.config else ""
        lines.append(f"- {link_and_revision(source, contents)}{role_text}")
    if plan.quantised:
        lines += ["", *_quantised(plan.quantised)]
    lines += ["", *section, "## Recipe", "", *in_fence(plan.recipe.text, "yaml"), ""]
    return "\n".join(lines)


def _quantised(output: QuantisedOutput) -> list[str]:
    """Return a section about the scheme of quantised weights, and the programs that load them."""
    loaders_sentence = f"{output.loaders[0].upper()}{output.loaders[1:]}."
    return [
        "## Quantisation",
        "",
        f"Weights of linear layers are written as `{output.name}`: {escaped(output.kind)}. "
        f"{escaped(loaders_sentence)}",
    ]


def _gates(plan: Plan) -> str:
    """Return a sentence about the gates of a mixture and its experts per token."""
    mixture = plan.recipe.mixture
    assert mixture is not None
    training = ": they must be trained" if mixture.gate_mode not in OF_PROMPTS else ""
    return (
        f"Each token uses {mixture.experts_per_token} of {len(mixture.experts)} experts; its gates "
        f"are {mixture.gate_mode}{training}."
    )


def _merged(plan: Plan) -> str:
    """Return a text with the number of merged models, and their base model or stages."""
    if plan.stages:
        stage_count = 1 + len(plan.stages)
        return (
            f"{counted(len(plan.own_sources), 'model')} in {counted(stage_count, 'stage')}, "
            "the last"
        )
    base_sources = [source for source in plan.own_sources if source.ref == plan.recipe.base_model]
    count = len(plan.own_sources) - len(base_sources)
    return counted(count, "model") + "".join(f" onto {_link(source)}" for source in base_sources)


def _first_reference(plan: Plan) -> int:
    """Return the number of the source whose config the output has, following stages to a source."""
    stage_by_name = {stage.recipe.name: stage for stage in plan.stages}
    while (stage := stage_by_name.get(plan.reference_model.ref.parts[0].text)) is not None:
        plan = stage
    return plan.reference


def link_and_revision(source: Source, contents: Mapping[str, str]) -> str:
    """Return the link and the revision of a source, including its adapter, in Markdown."""
    if source.base is None or source.adapter is None:
        loss = "what that took from the weights was lost before the merge"
        scheme_name = source.stored.quantised if source.stored else ""
        scheme_text = f", quantised: {scheme_name} ({loss})" if scheme_name else ""
        return f"{_link(source)} ({_revision(source, contents)}){scheme_text}"
    base, adapter = (link_and_revision(part, contents) for part in (source.base, source.adapter))
    return f"{base} with the LoRA adapter {adapter}"


def _link(source: Source) -> str:
    if source.kind == "hub":
        return f"[{source.ref.name}]({HUB}{source.ref.name})"
    return code_span(source.ref.text)


def _revision(source: Source, contents: Mapping[str, str]) -> str:
    """Return a text with the pin of a model: a commit, a digest of ETags, or a local checksum."""
    if source.kind == "bucket":
        return f"objects `{source.revision}` (xxh3-128 of names, ETags and sizes)"
    if source.revision:
        return f"commit `{source.revision}`"
    content = contents.get(source.ref.text)
    origin = "a local file" if source.single or source.led_to_by_file else "a local folder"
    if not content:
        return origin
    return f"{origin}, checksum of what this recipe reads of it: `{content}` (xxh3-128)"
