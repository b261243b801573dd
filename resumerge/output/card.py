"""The model card: the method with its papers, the models with their revisions, and the recipe."""

from __future__ import annotations

import re

import yaml

from resumerge.methods import METHODS
from resumerge.planning.plan import Plan
from resumerge.sources.types import Source


def model_card(plan: Plan, name: str, library: str = "transformers") -> str:
    """README.md of the output, with the metadata that the Hub reads.

    Args:
        library: name on the Hub of the library that loads the model.
    """
    method = METHODS[plan.recipe.merge_method]
    parts = [part for source in plan.sources for part in source.parts.values()]
    hub = list(dict.fromkeys(part.ref.name for part in parts if part.kind == "hub"))
    metadata = {
        **({"base_model": hub, "base_model_relation": "merge"} if hub else {}),
        "library_name": library,
        "tags": ["mergekit", "merge", "resumerge"],
    }
    lines = [
        "---",
        yaml.safe_dump(metadata, sort_keys=False).strip(),
        "---",
        f"# {name}",
        "",
        f"A merge of {len(plan.sources)} model{'s' * (len(plan.sources) != 1)} with the "
        f"**{method.name}** method ({method.summary}), made with resumerge.",
        "",
    ]
    if method.papers:
        lines += ["## Method", ""]
        lines += [f"- [{paper.title}]({paper.url})" for paper in method.papers] + [""]
    lines += ["## Models", ""]
    for number, source in enumerate(plan.sources):
        role = ", base model" if source.ref == plan.recipe.base_model else ""
        role += ", config and tokenizer" if number == plan.reference else ""
        lines.append(f"- {_described(source)}{role}")
    recipe = plan.recipe.text.strip()
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", recipe)), default=0))
    lines += ["", "## Recipe", "", f"{fence}yaml", recipe, fence, ""]
    return "\n".join(lines)


def _described(source: Source) -> str:
    """The link and the revision of a source, and of its adapter."""
    if source.base is None or source.adapter is None:
        return f"{_link(source)} ({_revision(source)})"
    base, adapter = _described(source.base), _described(source.adapter)
    return f"{base} with the LoRA adapter {adapter}"


def _link(source: Source) -> str:
    if source.kind == "hub":
        return f"[{source.ref.name}](https://huggingface.co/{source.ref.name})"
    return f"`{source.ref.text}`"


def _revision(source: Source) -> str:
    if source.revision:
        return f"commit `{source.revision}`"
    headers = [
        str(file.identity.get("header", ""))[:16] for _, file in sorted(source.files.items())
    ]
    return f"a local folder, headers {', '.join(f'`{h}`' for h in headers)} (xxh3)"
