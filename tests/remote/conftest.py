"""Fixtures of the tests of models that are elsewhere."""

from __future__ import annotations

import pytest
from loopback_hub import Hub
from parts_elsewhere import BASE, LORA, MODEL
from served_objects import Objects, served

from resumerge.recipe.references import read_reference
from resumerge.remote.metadata_cache import MetadataCache
from resumerge.sources.open import open_source
from resumerge.sources.remote.hub import open_hub_model
from resumerge.sources.types import Source

__all__ = ["served"]


@pytest.fixture
def objects(hub: Hub, served: Objects) -> Objects:
    """Upload an adapter to a bucket, and commit its model and another one to the Hub."""
    served.clear()
    served.upload("lora", LORA)
    hub.commit("org/base", BASE)
    hub.commit("org/model", MODEL)
    return served


@pytest.fixture
def metadata() -> MetadataCache:
    return MetadataCache()


@pytest.fixture
def source(objects: Objects, metadata: MetadataCache) -> Source:
    """Return a model with an adapter, of which only the configs are cached."""
    return open_source(read_reference("org/base+s3://box/lora"), metadata=metadata)


@pytest.fixture
def model(hub: Hub, objects: Objects, metadata: MetadataCache) -> Source:
    """Return a model in one file, of which only the config is cached."""
    found = open_hub_model(read_reference("org/model"), metadata=metadata)
    hub.forget_requests()
    return found
