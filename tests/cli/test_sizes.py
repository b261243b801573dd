"""5GB is decimal, 5GiB is binary, and what is no size is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.option_types import parse_size
from resumerge.sizes import counted, show_size


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("5GB", 5 * 10**9),
        ("5G", 5 * 10**9),
        ("5gb", 5 * 10**9),
        ("5GiB", 5 * 2**30),
        ("5Gi", 5 * 2**30),
        ("500MB", 500 * 10**6),
        ("1.5TB", 1_500_000_000_000),
        (".5 kB", 500),
        ("512KiB", 2**19),
        ("123", 123),
        ("1B", 10**9),  # as in tutorials of mergekit: a billion
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "GB", "5XB", "5 GB more", "-5GB", "0", "0.1", "5iB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@given(st.text())
def test_any_text(text: str) -> None:
    try:
        assert parse_size(text) > 0
    except ValueError as error:
        assert "is not a size" in str(error)


@given(st.integers(1000, 10**15))
def test_what_is_shown_can_be_read_again(nbytes: int) -> None:
    assert parse_size(show_size(nbytes)) == pytest.approx(nbytes, rel=0.01)


@pytest.mark.parametrize(("count", "text"), [(0, "0 tensors"), (1, "1 tensor"), (2, "2 tensors")])
def test_one_of_a_kind(count: int, text: str) -> None:
    assert counted(count, "tensor") == text
