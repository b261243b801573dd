"""Names, paths, recipes and messages that others chose are text on the page, whatever they hold."""

from __future__ import annotations

import re
from pathlib import Path

from asking import start, status
from ledger_rows import change
from made_up_ledgers import make_ledger
from pages import Element, read_page
from tiny_models import write_family

import resumerge

EVIL = "<script>document.title='run'</script><img src=x onerror=alert(1)>\"'&amp;"
KNOWN = [
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "main",
    "header",
    "footer",
    "section",
    "h1",
    "h2",
    "p",
    "div",
    "span",
    "b",
    "br",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "pre",
    "code",
    "table",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "figure",
    "figcaption",
    "details",
    "summary",
    "svg",
    "path",
    "rect",
    "line",
]


def elements(page: Element) -> list[Element]:
    return [page, *(found for child in page.children for found in elements(child))]


def harmless(page: Element) -> None:
    """Check that a page has only its own elements, no handlers, and no addresses outside it."""
    for element in elements(page)[1:]:
        assert element.name in KNOWN, element.name
        for name, value in element.attributes.items():
            assert not name.startswith("on"), name
            assert name not in ("src", "href", "xlink:href", "action", "data", "srcdoc"), value
            if name == "style":
                assert re.fullmatch(r"((left|width):[\d.]+%;?)+", value)
    [style] = page.all("style")
    assert not re.search(r"url\(|@import", style.text)


def test_a_real_run_with_a_script_for_a_name(tmp_path: Path) -> None:
    folder = "<script>document.title='run'<"  # the rest of it is the folder below
    write_family(tmp_path / folder / "script>")
    recipe = f"# </pre>{EVIL}\nmerge_method: linear\nmodels:\n" + "".join(
        f'  - {{model: "{folder}/script>/{name}", parameters: {{weight: 1}}}}\n'
        for name in ("math", "code")
    )
    (tmp_path / "<b>recipe.yaml").write_text(recipe)
    run = start("run", "<b>recipe.yaml", "<i>out", cwd=tmp_path)
    assert run.wait() == 0
    status(tmp_path, "--html", "run.html")
    text = (tmp_path / "run.html").read_text()
    page = read_page(text)
    harmless(page)
    assert "<script" not in text
    assert recipe in [pre.whole_text for pre in page.all("pre")]
    assert any(f"{folder}/script>/math" in code.whole_text for code in page.all("code"))


def test_every_text_of_the_ledger(tmp_path: Path) -> None:
    attempts = [
        {"n": n, "started": 0, "ended": 9, "outcome": "error", "host": EVIL, "bytes_committed": 1}
        for n in (1, 2)
    ]
    samples = [(float(n), 1, 5, 5, 5, 5, n) for n in range(5)]
    folder = make_ledger(
        tmp_path / "state",
        attempts,
        samples,
        [(1, "unheard_of", {EVIL: EVIL, "reason": EVIL}), (1, "stopped", {"reason": EVIL})],
        config_text=EVIL,
        config_path=EVIL,
        output=EVIL,
    )
    ledger = folder / "ledger.db"
    change(ledger, "UPDATE sources SET model = ?, folder = ?", [EVIL] * 2)
    change(ledger, "UPDATE units SET name = ? WHERE number = 3", [EVIL])
    change(ledger, "UPDATE units SET name = 'x.' || ? || '.4.' || ? WHERE number = 4", [EVIL] * 2)
    status(tmp_path, "--html", "run.html")
    page = read_page((tmp_path / "run.html").read_text())
    harmless(page)
    assert page.whole_text.count(EVIL) > 10
    fragment = resumerge.status(state_dir=tmp_path / "state")._repr_html_()  # type: ignore[attr-defined]
    harmless(read_page(fragment))


def test_the_terminal_is_not_driven_by_names(tmp_path: Path) -> None:
    evil = "\x1b]0;title\x07\x1b[2J[/red][bold]\n\r\x9b1m"
    make_ledger(
        tmp_path / "state",
        [{"n": 1, "started": 0, "ended": 9, "outcome": "error", "host": evil}],
        [],
        [(1, "stopped", {"reason": evil}), (1, "unheard_of", {evil: evil})],
        output=evil,
    )
    for words in ([], ["made-up"]):
        text = status(tmp_path, *words, COLUMNS="200")
        assert not set(text) & set(map(chr, [*range(10), *range(11, 32), *range(127, 160)]))
        assert "[/red][bold]" in text


def test_a_page_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    make_ledger(tmp_path / "state", [{"n": 1, "started": 0, "ended": 9, "outcome": "error"}])
    for words in (["no/where.html"], ["x.html", "--json"], ["x.html", "--watch"]):
        process = start("status", "--html", *words, cwd=tmp_path, stderr=-1)
        told = process.communicate()[1]
        assert process.returncode == 2
        assert "cannot be written" in told or "--html cannot be combined with" in told
        assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_page_takes_the_place_of_a_page_and_of_nothing_else(tmp_path: Path) -> None:
    make_ledger(tmp_path / "state", [{"n": 1, "started": 0, "ended": 9, "outcome": "error"}])
    kept = {"recipe.yaml": "merge_method: linear\n", "other.html": "<!doctype html>\n<html>"}
    for name, text in kept.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    for target in (*kept, ".", "..", "folder", "link", "/dev/null"):
        process = start("status", "--html", target, "made-up", cwd=tmp_path, stderr=-1)
        told = process.communicate()[1]
        assert (process.returncode, "would replace another file" in told) == (2, True), told
        assert "do: " in told
    assert {name: (tmp_path / name).read_text() for name in kept} == kept
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        ["folder", "link", "state", *kept]
    )

    (tmp_path / "empty").touch()
    for _ in range(2):
        status(tmp_path, "--html", "empty")
        harmless(read_page((tmp_path / "empty").read_text()))
