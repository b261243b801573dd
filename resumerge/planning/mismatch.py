"""Reports how the tensors of two models differ, and the likely cause."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from resumerge.errors import Problem
from resumerge.layout import listed
from resumerge.layout.model_views import ModelViews
from resumerge.recipe import Input, ModelRef, Recipe
from resumerge.recipe.spelling import did_you_mean
from resumerge.tensors import Tensor


@dataclass
class Mismatches:
    """The tensors that prevent merging: missing, surplus or unlike, for each pair of models."""

    recipe: Recipe
    models: ModelViews
    _missing: dict[tuple[str, ModelRef, ModelRef], list[str]] = field(default_factory=dict)
    _unlike: dict[tuple[str, ModelRef, ModelRef], list[tuple[str, Tensor, Tensor]]] = field(
        default_factory=dict
    )
    _surplus: dict[tuple[str, ModelRef, ModelRef], list[str]] = field(default_factory=dict)

    def missing(self, input_: Input, name: str, guide: ModelRef) -> None:
        """Record a tensor that an input lacks and the guide has, by its name in the input."""
        self._missing.setdefault((input_.path, input_.model, guide), []).append(name)

    def unlike(
        self, input_: Input, name: str, guide: ModelRef, like: Tensor, found: Tensor
    ) -> None:
        """Record a tensor of an input whose shape or kind of numbers differs from the guide's."""
        entry = (name, like, found)
        self._unlike.setdefault((input_.path, input_.model, guide), []).append(entry)

    def surplus(self, input_: Input, name: str, guide: ModelRef) -> None:
        """Record a tensor that an input has and the guide lacks. The output would lose it."""
        self._surplus.setdefault((input_.path, input_.model, guide), []).append(name)

    def problems(self) -> Iterator[Problem]:
        """Yield one problem for each pair of models and kind of mismatch."""
        for (path, ref, guide), names in self._missing.items():
            yield self._missing_problem(path, ref, guide, names)
        for (path, ref, guide), names in self._surplus.items():
            # The problem of missing tensors also lists the surplus ones.
            if (path, ref, guide) not in self._missing:
                yield self._surplus_problem(path, ref, guide, names)
        for (path, ref, guide), entries in self._unlike.items():
            entries = [entry for entry in entries if not self._of_tokens(guide, ref, entry)]
            if len(entries) < len(self._unlike[path, ref, guide]):
                yield self._other_vocabulary(path, ref, guide)
            if not entries:
                continue
            name, guide_tensor, input_tensor = entries[0]
            further_text = f"; and {len(entries) - 1} more" if len(entries) > 1 else ""
            yield self.recipe.problem(
                f"Shapes do not match in tensor {name}",
                path,
                expected=f"{guide_tensor.dtype} {list(guide_tensor.shape)}, as in {guide}",
                found=f"{input_tensor.dtype} {list(input_tensor.shape)} in {ref}{further_text}",
                fix="Merge models with the same architecture and vocabulary",
            )

    def _of_tokens(self, guide: ModelRef, ref: ModelRef, entry: tuple[str, Tensor, Tensor]) -> bool:
        """Return whether two tensors differ only in the number of tokens."""
        _, guide_tensor, input_tensor = entry
        return guide_tensor.shape[1:] == input_tensor.shape[1:] and all(
            tensor.name in self.models.vocabularies[model].found
            for model, tensor in ((guide, guide_tensor), (ref, input_tensor))
        )

    def _other_vocabulary(self, path: str, ref: ModelRef, guide: ModelRef) -> Problem:
        sizes = [self.models.vocabularies[model].size for model in (guide, ref)]
        return self.recipe.problem(
            "Vocabularies differ in size",
            path,
            expected=f"{sizes[0]} tokens, as in {guide}; or a tokenizer option that says how "
            "tokens are matched",
            found=f"{sizes[1]} tokens in {ref}, and no tokenizer option",
            fix=f"Add 'tokenizer_source: base' at the top level to keep the tokens of {guide}, "
            "or 'tokenizer_source: union' to keep the tokens of all models",
        )

    def _missing_problem(
        self, path: str, ref: ModelRef, guide: ModelRef, names: list[str]
    ) -> Problem:
        tensors = self.models.sources[ref].tensors
        guide_names = {
            self.models.name_in(ref, name) for name in self.models.sources[guide].tensors
        }
        extra_names = [
            name for name in tensors if name not in guide_names and not self._deeper(ref, name)
        ]
        is_single = len(names) == 1
        headline = (
            f"A tensor is missing from {ref}"
            if is_single
            else f"{len(names)} tensors are missing from {ref}"
        )
        found_text = f"no such tensor{'s' * (not is_single)}"
        if extra_names:
            found_text += (
                f"; {ref} has {len(extra_names)} that {guide} lacks: {listed(extra_names)}"
            )
        suggestion = "" if extra_names else did_you_mean(names[0], tensors)
        return self.recipe.problem(
            headline,
            path,
            expected=f"{listed(names)}, as in {guide}",
            found=f"{found_text} ({suggestion})" if suggestion else found_text,
            fix=self._fix(ref, guide, names, extra_names),
        )

    def _deeper(self, ref: ModelRef, name: str) -> bool:
        """Return whether a tensor is in a layer beyond the last layer of the reference."""
        layer = self.models.layers[ref].locate(name)
        counts = self.models.layers[self.models.reference].counts
        return layer is not None and any(
            layer.index >= count
            for stack, count in counts.items()
            if self.models.stack_in(ref, stack) == layer.stack
        )

    def _surplus_problem(
        self, path: str, ref: ModelRef, guide: ModelRef, names: list[str]
    ) -> Problem:
        is_single = len(names) == 1
        return self.recipe.problem(
            f"{'A tensor' if is_single else f'{len(names)} tensors'} of {ref} would be lost",
            path,
            expected=f"only tensors that {guide} has: the output gets its config.json",
            found=f"{listed(names)} in {ref}",
            fix=self._fix(ref, guide, [], names),
        )

    def _fix(self, ref: ModelRef, guide: ModelRef, names: list[str], extra: list[str]) -> str:
        if all(any("experts." in name for name in side) for side in (names, extra)):
            return (
                "The two models store their experts in forms that are not made from each other "
                "here (gates and ups interleaved, or matrices transposed): load one of them and "
                "save it with the transformers version that saved the other"
            )
        model_types = [self.models.sources[r].config.get("model_type") for r in (ref, guide)]
        if model_types[0] != model_types[1]:
            types_text = f"{ref} has model_type {model_types[0]}, {guide} has {model_types[1]}"
            return f"Merge models of the same architecture: {types_text}"
        incomplete_ref = ref if names else guide
        return (
            "Merge models of the same architecture, or check that "
            f"{incomplete_ref} was saved completely"
        )
