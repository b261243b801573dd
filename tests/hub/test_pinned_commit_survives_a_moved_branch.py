"""A source is a commit: what happens to the branch later changes nothing."""

from __future__ import annotations

import pytest
from hub_models import ref, single
from loopback_hub import Hub

from resumerge.errors import InputError
from resumerge.sources.remote.files import fetch
from resumerge.sources.remote.hub import open_hub_model


def test_pinned_commit_is_read_after_the_branch_moved(hub: Hub) -> None:
    first = hub.commit("org/model", single(fill=1))
    source = open_hub_model(ref("org/model"))
    assert source.revision == first
    second = hub.commit("org/model", single(fill=2))

    again = open_hub_model(ref("org/model"), revision=source.revision)
    fetch(again, again.files)

    assert again.identity() == source.identity()
    assert (again.folder / "model.safetensors").read_bytes() == single(fill=1)["model.safetensors"]
    assert open_hub_model(ref("org/model")).revision == second


def test_fetch_stays_at_the_commit_if_the_branch_moves_in_between(hub: Hub) -> None:
    hub.commit("org/model", single(fill=1))
    source = open_hub_model(ref("org/model"))
    hub.commit("org/model", single(fill=2))
    fetch(source, source.files)
    assert (source.folder / "model.safetensors").read_bytes() == single(fill=1)["model.safetensors"]


def test_identity_changes_with_the_content(hub: Hub) -> None:
    hub.commit("org/model", single(fill=1))
    one = open_hub_model(ref("org/model")).identity()
    hub.commit("org/model", single(fill=2))
    two = open_hub_model(ref("org/model")).identity()
    assert one["files"]["model.safetensors"]["etag"] != two["files"]["model.safetensors"]["etag"]


def test_branch_tag_or_pull_request_is_resolved(hub: Hub) -> None:
    hub.commit("org/model", single(fill=1))
    other = hub.commit("org/model", single(fill=2), branch="refs/pr/1")
    source = open_hub_model(ref("org/model@refs/pr/1"))
    assert source.revision == other
    assert open_hub_model(ref("org/model@refs/pr/1"), offline=False).identity() == source.identity()


def test_unknown_revision_is_refused_by_name(hub: Hub) -> None:
    hub.commit("org/model", single())
    with pytest.raises(InputError, match="no such branch, tag or commit") as caught:
        open_hub_model(ref("org/model@nosuch"))
    assert "nosuch" in str(caught.value)
