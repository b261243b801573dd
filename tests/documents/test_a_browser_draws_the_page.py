"""Chromium draws the page, wide and narrow, light and dark, and runs nothing in it."""

from __future__ import annotations

import html
import json
import shutil
import struct
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from made_up_ledgers import make_ledger

import resumerge
from resumerge.ui.html.page_file import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

COLOURS = {
    "light": {"bar": (0x23, 0x85, 0x4A), "memory": (0x0C, 0x7C, 0x92), "card": (255, 255, 255)},
    "dark": {"bar": (0x55, 0xBE, 0x80), "memory": (0x3F, 0xB6, 0xCF), "card": (0x19, 0x1D, 0x23)},
}
"""As report.css names them."""

SCALE = 0.5
"""Pixels of a picture for one of the page, since decoding it takes a while."""


LONG = "a reason of many words, as the kernel or a server gives it to who asks, " * 4
"""The details of an event."""

PHONE = 390
"""The pixels that most phones are wide."""

# Chromium's own window is at least 500 pixels wide: a frame in it may be narrower.
ON_A_PHONE = f"""<!DOCTYPE html><iframe src="run.html" width="{PHONE}" height="800"></iframe>
<script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  const scrolls = (e) => e.closest(".table:not(.wrap), pre") !== null;
  const all = [...page.querySelectorAll(".resumerge *")].filter((e) => !scrolls(e));
  const wide = all.filter((e) => e.getBoundingClientRect().right > {PHONE} + 1);
  const details = [...page.querySelectorAll(".wrap td:last-child")];
  const least = Math.min(...details.map((e) => e.getBoundingClientRect().width));
  const names = [...page.querySelectorAll(".names > span")].map((e) => e.getBoundingClientRect());
  document.body.innerHTML = "<p>" + JSON.stringify({{
    width: page.documentElement.scrollWidth,
    wide: wide.map((e) => `${{e.tagName}} ${{e.className}}`),
    details: details.length && least,
    overlapping: names.some((a, i) => names.some((b, k) =>
      k > i && a.right > b.left + 1 && a.left + 1 < b.right && a.bottom > b.top + 1
        && a.top + 1 < b.bottom)),
  }}) + "</p>";
}};
</script>"""


def browser(page: Path, *words: str) -> str:
    assert CHROMIUM is not None
    profile = page.with_name("profile")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", *words, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("browser")
    attempts = [
        {"n": n, "started": n * 200, "ended": n * 200 + 100, "outcome": "oom", "budget": 10**9,
         "bytes_committed": 10**9}
        for n in (1, 2)
    ]  # fmt: skip
    samples = [
        (n * 200 + t, n, 5 * 10**8, 10**9, 10**9, 2**27, 10**9 * n + 10**7 * t)
        for n in (1, 2)
        for t in range(100)
    ]
    evil = "<script>document.title='it ran'</script>"
    events = [(2, "source_differs", {"reason": LONG, "model": f"models/{LONG.replace(' ', '_')}"})]
    made_up: dict[str, Any] = {"output": evil, "config_text": evil, "units": 600}
    make_ledger(place / "state", attempts, samples, events, **made_up)
    file = place / "run.html"
    write_report(resumerge.status(state_dir=place / "state")["runs"][0], file)
    return file


def pixels(png: bytes) -> tuple[int, list[bytes]]:
    """Return the width and the RGB rows of a picture of Chromium: 8 bits, RGB or RGBA."""
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert depth == 8
    size = {2: 3, 6: 4}[kind]
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    raw, stride = zlib.decompress(data), width * size
    rows: list[bytes] = []
    above = bytearray(stride)
    for y in range(height):
        start = y * (stride + 1)
        filter_, row = raw[start], bytearray(raw[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = row[i - size] if i >= size else 0
            corner = above[i - size] if i >= size else 0
            row[i] = (row[i] + _guess(filter_, left, above[i], corner)) & 255
        rows.append(bytes(v for i, v in enumerate(row) if size == 3 or i % 4 != 3))
        above = row
    return width, rows


def _guess(filter_: int, left: int, up: int, corner: int) -> int:
    """Return what a row's filter adds to a byte, by section 9 of the PNG specification."""
    if filter_ == 4:
        p = left + up - corner
        return min((left, up, corner), key=lambda v: abs(p - v))
    return (0, left, up, (left + up) // 2)[filter_]


@pytest.mark.parametrize(("width", "scheme"), [(1400, "light"), (500, "dark")])
def test_it_is_drawn(page: Path, width: int, scheme: str) -> None:
    picture = page.with_name(f"{width}-{scheme}.png")
    dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
    size = [f"--window-size={width},1500", f"--force-device-scale-factor={SCALE}"]
    browser(page, *size, f"--screenshot={picture}", *dark)
    shown, rows = pixels(picture.read_bytes())
    assert shown == width * SCALE
    assert (max(rows[0][:3]) < 60) == (scheme == "dark")
    colours = COLOURS[scheme]
    content = (min(width, 1120) - 80) * SCALE
    assert longest(rows, colours["bar"]) > 0.9 * content, "all is committed"
    area = tuple(0.84 * c + 0.16 * m for c, m in zip(colours["card"], colours["memory"]))
    assert longest(rows, area) > 0.35 * content, "an attempt is half of the plot"


def longest(rows: list[bytes], colour: tuple[float, ...]) -> int:
    """Return the length in pixels of the longest line of a colour in any row."""
    found = 0
    for row in rows:
        here = 0
        for i in range(0, len(row), 3):
            near = all(abs(a - b) <= 3 for a, b in zip(row[i : i + 3], colour))
            here = here + 1 if near else 0
            found = max(found, here)
    return found


def test_nothing_in_it_runs(page: Path) -> None:
    drawn = browser(page, "--dump-dom")
    assert "<title>made-up: interrupted</title>" in drawn
    assert "&lt;script&gt;" in drawn
    assert "<script" not in drawn


def test_a_phone_shows_all_of_it(page: Path) -> None:
    """The page is not wider than the phone, and details of events have nearly the whole width."""
    phone = page.with_name("phone.html")
    phone.write_text(ON_A_PHONE)
    drawn = browser(phone, "--allow-file-access-from-files", "--dump-dom")
    said = json.loads(html.unescape(drawn.partition("<p>")[2].partition("</p>")[0]))
    assert said["width"] == PHONE and said["wide"] == []
    assert said["details"] > 0.8 * PHONE
    assert not said["overlapping"]
