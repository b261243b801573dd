"""5GB is decimal and 5GiB is binary; other texts are refused, and a size that is shown
can be read.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from resumerge.options.types import parse_size
from resumerge.sizes import counted, show_age, show_seconds, show_size, show_tick


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
        ("1234", 1234),
        ("1B", 10**9),  # as in tutorials of mergekit: a billion
    ],
)
def test_sizes(text: str, nbytes: int) -> None:
    assert parse_size(text) == nbytes


@pytest.mark.parametrize("text", ["", "GB", "5XB", "5 GB more", "-5GB", "0", "0.1", "5iB", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["5", "999"])
def test_few_bytes_lack_a_unit(text: str) -> None:
    with pytest.raises(ValueError, match=f"is not a size: .* write {text}GB"):
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


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (999.5, "1 kB"),
        (1500, "1.5 kB"),
        (-1500, "-1.5 kB"),
        (999_499, "999 kB"),
        (1_710_000_000, "1.71 GB"),
        (999_600_000_000, "1 TB"),
        (1_234_567_000_000_000, "1235 TB"),
    ],
)
def test_a_size_has_three_digits(nbytes: float, text: str) -> None:
    assert show_size(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0 s"),
        (0.04, "40 ms"),
        (0.0994, "99 ms"),
        (0.0996, "0.1 s"),
        (9.94, "9.9 s"),
        (42.4, "42 s"),
        (59.4, "59 s"),
        (59.9, "1 min 0 s"),
        (60, "1 min 0 s"),
        (200, "3 min 20 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (100 * 3600 + 59, "100 h 0 min"),
    ],
)
def test_a_time_has_two_units(seconds: float, text: str) -> None:
    assert show_seconds(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (40, "40 s"),
        (60, "1 min"),
        (720, "12 min"),
        (3600, "1 h"),
        (5 * 3600, "5 h"),
        (86400, "1 day"),
        (1.9 * 86400, "1 day"),
        (30 * 86400, "30 days"),
    ],
)
def test_an_age_has_one_unit(seconds: float, text: str) -> None:
    assert show_age(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (0.025, "0.025 s"), (1.25, "1.25 s"), (60, "1 min 0 s"), (125, "2 min 5 s")],
)
def test_a_tick_has_the_digits_that_it_needs(seconds: float, text: str) -> None:
    assert show_tick(seconds) == text
