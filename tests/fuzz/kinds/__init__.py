"""The kinds of files. A new kind is a subclass of `Kind` and an entry of `KINDS`."""

from __future__ import annotations

from fuzz.kinds.adapters import Adapters
from fuzz.kinds.base import Kind
from fuzz.kinds.gguf_files import GgufFiles
from fuzz.kinds.hub_metadata import HubMetadata
from fuzz.kinds.ledgers import Ledgers
from fuzz.kinds.mirrors import Manifests, Snapshots
from fuzz.kinds.models import (
    Configs,
    GenerationConfigs,
    Headers,
    Indexes,
    TokenizerConfigs,
    Tokenizers,
)
from fuzz.kinds.quantised import Quantised
from fuzz.kinds.quantised_outputs import QuantisedOutputs
from fuzz.kinds.recipes import Recipes
from fuzz.kinds.torch_files import TorchFiles

__all__ = ["KINDS", "Kind"]

KINDS: dict[str, type[Kind]] = {
    "headers": Headers,
    "indexes": Indexes,
    "configs": Configs,
    "tokenizers": Tokenizers,
    "tokenizer_configs": TokenizerConfigs,
    "generation_configs": GenerationConfigs,
    "adapters": Adapters,
    "quantised": Quantised,
    "gguf": GgufFiles,
    "quantised_outputs": QuantisedOutputs,
    "torch_files": TorchFiles,
    "recipes": Recipes,
    "ledgers": Ledgers,
    "snapshots": Snapshots,
    "manifests": Manifests,
    "hub_metadata": HubMetadata,
}
