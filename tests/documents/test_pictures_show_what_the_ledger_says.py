"""What is plotted, in the terminal and on the page, is what the ledger's samples say."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
from asking import run_of, status
from ledger_rows import query
from made_up_ledgers import make_ledger
from pages import Element, drawing, drawn_values, read_page

import resumerge
from resumerge.documents.history import history_of
from resumerge.documents.panels import clipped_top, nice_ceiling
from resumerge.documents.timeline import lay_out
from resumerge.sizes import show_size
from resumerge.ui.html.page import COLUMNS


def rows(place: Path, sql: str) -> list[dict[str, object]]:
    return query(Path(run_of(place)["ledger"]), sql)


@pytest.fixture(scope="module")
def page(storied: Path) -> Element:
    told = status(storied, "--html", storied / "run.html")
    assert told.strip() == str(storied / "run.html")
    return read_page((storied / "run.html").read_text())


def test_the_terminal_names_peak_budget_and_every_attempt(storied: Path) -> None:
    text = status(storied, COLUMNS="100")
    [peak] = rows(storied, "SELECT max(peak_rss) AS n FROM attempts")
    assert f"memory: peak {show_size(peak['n'])}, budget 100 MB" in text
    names = text.split("└")[1].splitlines()[1]
    assert re.fullmatch(r"\s+attempt +1 killed.* +2 interrupted.* +3 done.*", names)
    assert "Attempt 1 was killed; attempt 2 resumed." in text
    assert "Attempt 2 was stopped by a signal; attempt 3 resumed." in text


def test_the_gaps_between_attempts_are_seen(storied: Path) -> None:
    lines = [line for line in status(storied, COLUMNS="100").splitlines() if "┊" in line]
    assert len(lines) == 12
    assert len({tuple(m.start() for m in re.finditer("┊", line)) for line in lines}) == 1
    assert lines[0].count("┊") == 2


def test_the_area_of_the_terminal_is_as_high_as_the_samples(storied: Path) -> None:
    [peak] = rows(storied, "SELECT max(rss) AS n FROM samples")
    picture = status(storied, COLUMNS="100").split("memory:")[1].split("batch size:")[0]
    columns = zip(*(line.ljust(100)[11:] for line in reversed(picture.splitlines()[1:])))
    eighths = max(sum(max(0, "▁▂▃▄▅▆▇█".find(c) + 1) for c in column) for column in columns)
    assert eighths == round(peak["n"] / nice_ceiling(1e8) * 6 * 8)


def test_memory_on_the_page(storied: Path, page: Element) -> None:
    [found] = rows(storied, "SELECT min(rss) AS low, max(rss) AS high FROM samples")
    svg = drawing(page, "memory")
    values = [value for _, value in drawn_values(svg)]
    precision = float(svg.attributes["data-top"]) * 0.0001
    assert max(values) == pytest.approx(found["high"], abs=precision)
    assert min(values) >= found["low"] - precision
    assert {round(value) for _, value in drawn_values(svg, "limit")} == {10**8}


def test_every_sample_stands_in_its_column(storied: Path, page: Element) -> None:
    values = drawn_values(drawing(page, "memory"))
    samples = rows(storied, "SELECT rss FROM samples WHERE attempt = 3 ORDER BY id")
    top = float(drawing(page, "memory").attributes["data-top"])
    shown = [value for _, value in values]
    for sample in samples:
        assert min(abs(value - sample["rss"]) for value in shown) <= top * 0.0001


def test_memory_is_drawn_from_the_beginning_of_an_attempt(storied: Path) -> None:
    history = history_of(resumerge.status(state_dir=storied / "state")["runs"][0])
    for lifetime in history.lifetimes:
        first = lifetime.points[0]
        assert first.done == lifetime.done_before
        before = int(5 * (first.at - lifetime.started) / lifetime.seconds)
        drawn = [cell.rss_high is not None for cell in lifetime.cells(5)]
        assert drawn[before:] == [True] * (5 - before)


def test_batch_size_on_the_page(storied: Path, page: Element) -> None:
    low, high = "min(batch_bytes) AS low", "max(batch_bytes) AS high"
    found = rows(storied, f"SELECT {low}, {high} FROM samples WHERE batch_bytes > 0")
    values = [value for _, value in drawn_values(drawing(page, "batch"))]
    assert [min(values), max(values)] == pytest.approx(list(found[0].values()), rel=1e-3)


def test_throughput_times_time_is_what_was_committed(storied: Path, page: Element) -> None:
    [known] = rows(storied, "SELECT sum(nbytes) AS n FROM units")
    history = history_of(resumerge.status(state_dir=storied / "state")["runs"][0])
    spans = lay_out(history, COLUMNS).spans
    points = drawn_values(drawing(page, "throughput"))
    committed = 0.0
    top = float(drawing(page, "throughput").attributes["data-top"])
    for span in spans:
        mine = [(x, y) for x, y in points if span.start <= x <= span.end]
        area = sum((x1 - x0) * y0 for (x0, y0), (x1, _) in pairwise(mine))
        area += sum(max(0.0, (cell.rate or 0.0) - top) for cell in span.cells)  # cut off
        committed += area * span.lifetime.seconds / len(span.cells)
    assert committed == pytest.approx(known["n"], rel=0.01)


def test_one_outlier_does_not_flatten_the_rest(tmp_path: Path) -> None:
    done, samples = 0, []
    for second in range(200):
        done += 900_000_000 if second == 77 else 10_000_000
        samples.append((float(second), 1, 10**8, 10**9, 10**9, 2**27, done))
    attempt = {"n": 1, "started": 0, "ended": 200, "outcome": "done", "bytes_committed": done}
    make_ledger(tmp_path / "state", [attempt], samples)
    status(tmp_path, "--html", tmp_path / "run.html")
    page = read_page((tmp_path / "run.html").read_text())
    svg = drawing(page, "throughput")
    assert float(svg.attributes["data-top"]) == 20_000_000
    assert max(value for _, value in drawn_values(svg)) == 20_000_000, "cut off at the top"
    [mark] = page.all("div", "outlier")
    assert mark.whole_text == "▲ 900 MB/s"
    text = status(tmp_path, COLUMNS="100")
    assert re.search(r"▲ up to \d\d\d MB/s", text)
    picture = text.split("throughput:")[1]
    assert re.search(r"\n *[12]\d MB/s ┤ *.*▲", picture)


def test_a_course_without_outliers_is_not_cut_off() -> None:
    slow, quick = [10.0] * 60, [60.0] * 40
    for values in (slow, quick, [*slow, *quick], [1.0, 50.0], [0.0] * 99 + [50.0], []):
        assert clipped_top(values) >= max(values, default=0.0)


def test_timings_of_the_page_add_up(storied: Path, page: Element) -> None:
    [known] = rows(storied, "SELECT sum(seconds) AS s, count(*) AS n, sum(nbytes) AS b FROM units")
    titles = [title.whole_text for title in drawing(page, "seconds").all("title")]
    tensors = sum(int(re.search(r"(\d+) tensors?,", title)[1]) for title in titles)  # type: ignore[index]
    assert tensors == known["n"]
    assert [title.split(":")[0] for title in titles][:2] == ["model.embed_tokens", "0"]
    assert len(titles) == 6 + 3
    bars = drawing(page, "seconds").all("rect")
    top = float(drawing(page, "seconds").attributes["data-top"])
    heights = sum(float(bar.attributes["height"]) / 100 * top for bar in bars)
    assert heights == pytest.approx(known["s"], rel=0.01)


def test_the_page_holds_recipe_sources_shards_and_attempts(storied: Path, page: Element) -> None:
    text = page.whole_text
    assert (storied / "linear.yaml").read_text() in text
    for name in ("math", "code", "model.safetensors", "What happened", "killed", "interrupted"):
        assert name in text
    assert "To resume" not in text  # it is done


def test_status_in_python_is_a_dict_that_shows_itself(storied: Path) -> None:
    from rich.console import Console

    found = resumerge.status(state_dir=storied / "state")
    assert isinstance(found, dict)
    console = Console(width=100)
    with console.capture() as captured:
        console.print(found)
    assert "memory: peak" in captured.get()
    fragment = read_page(found._repr_html_())  # type: ignore[attr-defined]
    assert fragment.all("svg", "memory")
    assert not fragment.all("html")


def test_budget_and_batch_size_are_known_before_the_first_commit(tmp_path: Path) -> None:
    attempt = {"n": 1, "started": 0, "ended": 1, "outcome": "oom", "budget": 7, "batch_bytes": 5}
    make_ledger(tmp_path / "state", [attempt])
    assert run_of(tmp_path)["memory"] == {"budget": 7, "peak_rss": 0, "batch_bytes": 5}


def test_an_attempt_notes_its_budget_when_it_begins(storied: Path) -> None:
    for attempt in rows(storied, "SELECT budget, batch_bytes FROM attempts"):
        assert attempt["budget"] == 10**8
        assert attempt["batch_bytes"] > 0
