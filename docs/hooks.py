"""Pages of the documentation that are files of the repository's root, with their links mended.

mkdocs calls these functions by their names (``hooks`` in mkdocs.yml).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages by the files that they are made of."""

_LINK = re.compile(r"\[([^\[\]]+)\]\((?!https?:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    root = Path(config.config_file_path).parent
    for source, page in PAGES.items():
        text = (root / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to the pages of this site; a file that is not on it is named without a link."""
    root = Path(config.config_file_path).parent.resolve()
    here = Path(page.file.src_uri).parent
    folder = root if page.file.src_uri in PAGES.values() else root / "docs" / here

    def mended(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve().relative_to(root).as_posix()
        target = PAGES.get(target, target.removeprefix("docs/"))
        if files.get_file_from_path(target) is None:
            return link[1]
        return f"[{link[1]}]({os.path.relpath(target, here)}{link[3] or ''})"

    return _LINK.sub(mended, markdown)
