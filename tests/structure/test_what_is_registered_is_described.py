"""Promise: the pages on a subject name each method, scheme, format, program, store and relation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import resumerge
from benchmarks.identical.recipes import USES
from benchmarks.recipes import SHAPES
from resumerge.buckets.address import EXAMPLES
from resumerge.comparison.relations import RELATIONS
from resumerge.experts.upcycling.architectures import ARCHITECTURES
from resumerge.methods.base import KernelMethod
from resumerge.methods.registry import METHODS
from resumerge.mirror.stores.registry import STORES
from resumerge.quantisation import OUTPUTS, QUANTISATIONS
from resumerge.sources.adapter_programs import PROGRAMS
from resumerge.sources.formats.registry import FORMATS
from resumerge.sources.gguf.families import FAMILIES

CHECKOUT = Path(resumerge.__file__).parent.parent

OF_SCHEMES = {
    "Bitsandbytes4": "bitsandbytes",
    "Bitsandbytes8": "bitsandbytes",
    "Nvfp4": "NVFP4",
    "Mxfp4": "MXFP4",
    "GptOss": "MXFP4",
    "PackQuantized": "INT4",
    "Awq": "AWQ",
    "Gptq": "GPTQ",
    "Scaled": "FP8",
}
"""The word for each class of `QUANTISATIONS` in the docs."""

PLACES: dict[str, tuple[Iterable[str], str]] = {
    "methods": (METHODS, "docs/methods.md docs/benchmarks.md"),
    "methods that need torch": (
        [name for name, method in METHODS.items() if not isinstance(method, KernelMethod)],
        "README.md docs/methods.md docs/architecture.md docs/architecture/numbers.md"
        " docs/doors/uv.md",
    ),
    "formats": (
        [weight_format.suffixes[0].removeprefix(".") for weight_format in FORMATS],
        "docs/models.md SECURITY.md",
    ),
    "quantised models": (OF_SCHEMES.values(), "README.md docs/models.md"),
    "quantised outputs": (OUTPUTS, "docs/models.md"),
    "programs of adapters": (
        [program.name for program in PROGRAMS],
        "docs/adapters.md docs/architecture/sources.md docs/architecture.md",
    ),
    "architectures of mixtures": ([made.name for made in ARCHITECTURES], "docs/mixtures.md"),
    "families of GGUF models": (FAMILIES, "docs/models.md"),
    "clouds": (
        [f"{scheme}:/" for scheme in EXAMPLES],
        "README.md docs/mirrors.md docs/models.md docs/more-machines.md"
        " resumerge/engine/checks/cluster.py",
    ),
    "stores": ([f"{scheme}:" for scheme in STORES], "docs/mirrors.md"),
    "relations": (
        [*RELATIONS, *(relation.word for relation in RELATIONS.values())],
        "docs/compare.md",
    ),
}
"""The names of what is registered, and the files that have to contain each of them."""


@pytest.mark.parametrize("kind", PLACES)
def test_each_is_named(kind: str) -> None:
    names, files = PLACES[kind]
    texts = {file: (CHECKOUT / file).read_text(encoding="utf-8").lower() for file in files.split()}
    missing = {
        file: absent
        for file, text in texts.items()
        if (absent := [name for name in names if not _has_word(text, name.lower())])
    }
    assert not missing


def _has_word(text: str, word: str) -> bool:
    """Return whether a text contains a word that is not a part of a longer one."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


def test_each_quantised_scheme_has_its_word() -> None:
    assert list(OF_SCHEMES) == [type(scheme).__name__ for scheme in QUANTISATIONS]


def test_each_method_is_measured_and_has_a_hash() -> None:
    """`SHAPES` has its recipe for speed and memory, `USES` the recipe whose bytes are compared."""
    assert set(SHAPES) == set(METHODS)
    assert {use.method for use in USES} == set(METHODS)
