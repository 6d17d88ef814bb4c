"""Hooks of mkdocs: reference pages from the code, and pages for files of the repository that the documents link to.

Documents link to each other and to source files by relative paths, so that they can be read on any git host. On the
site, a file outside docs/ becomes a page below repository/, and links to it lead there.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
OUTSIDE = "repository/"
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^ {0,3}(```|~~~)")
_LANGUAGES = {".py": "python", ".toml": "toml", ".json": "json", ".yaml": "yaml", ".cff": "yaml", ".service": "ini"}
_LONGEST = 100_000  # characters of a file that a page shows
_PICTURES = (".png", ".svg", ".jpg")


def on_files(files: Any, config: Any) -> Any:
    """Add the reference, and every file outside docs/ that a page or the navigation names, with what those name."""
    sys.path.insert(0, str(Path(__file__).parent))
    from reference import PAGES

    for uri, page in PAGES.items():
        files.append(File.generated(config, uri, content=page()))
    waiting = [ROOT / uri.removeprefix(OUTSIDE) for uri in _named(config["nav"]) if uri.startswith(OUTSIDE)]
    for path in DOCS.rglob("*.md"):
        waiting.extend(_outside(path))
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        if path.suffix in _PICTURES:
            files.append(File.generated(config, uri_of(path), abs_src_path=str(path)))
            continue
        files.append(File.generated(config, uri_of(path), content=_page_of(path)))
        if path.suffix == ".md":
            waiting.extend(_outside(path))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Lead links to the pages that stand for files."""
    uri = page.file.src_uri
    if page.file.generated_by and not uri.startswith(OUTSIDE):  # the reference
        return markdown
    if uri.startswith(OUTSIDE):
        origin = ROOT / uri.removeprefix(OUTSIDE)
        if origin.suffix != ".md" or not origin.exists():
            return markdown
    else:
        origin = DOCS / uri

    def lead(found: re.Match[str]) -> str:
        target = _resolved(origin, found[2])
        if target is None:
            return found[0]
        relative = os.path.relpath(uri_of(target), Path(uri).parent).replace(os.sep, "/")
        return f"{found[1]}{relative}{found[3] or ''}{found[4]}"

    return "\n".join(line if code else _LINK.sub(lead, line) for code, line in _lines(markdown))


def uri_of(path: Path) -> str:
    """The page of the site, by the path of its source, that shows a file or a folder of the repository."""
    if path.is_relative_to(DOCS):
        path = path / "README.md" if path.is_dir() else path
        return path.relative_to(DOCS).as_posix()
    shown = path.suffix in (".md", *_PICTURES)
    return OUTSIDE + path.relative_to(ROOT).as_posix() + ("" if shown else ".md")


def _lines(markdown: str) -> Iterator[tuple[bool, str]]:
    """Each line, and whether it is part of a block of code."""
    fence = ""
    for line in markdown.split("\n"):
        mark = found[1] if (found := _FENCE.match(line)) else ""
        yield bool(fence or mark), line
        if mark and fence in ("", mark):
            fence = "" if fence else mark


def _resolved(origin: Path, target: str) -> Path | None:
    """The file of the repository that a link leads to, or None: a link to elsewhere, or to nothing."""
    if "://" in target or target.startswith(("mailto:", "/")):
        return None
    path = (origin.parent / unquote(target)).resolve()
    return path if path.exists() and path.is_relative_to(ROOT) else None


def _outside(page: Path) -> Iterator[Path]:
    for code, line in _lines(page.read_text(encoding="utf-8")):
        for found in () if code else _LINK.finditer(line):
            target = _resolved(page, found[2])
            if target is not None and not target.is_relative_to(DOCS):
                yield target


def _named(nav: Any) -> Iterator[str]:
    """The pages that the navigation names."""
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(each)


def _page_of(path: Path) -> str:
    """A page that shows a file, or lists a folder."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    title = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return title + "\n".join(f"- `{each.name}`" for each in sorted(path.iterdir()) if each.name[0] not in "._")
    text = path.read_text(encoding="utf-8")
    if len(text) > _LONGEST:
        return f"{title}The file has {len(text):,} characters; see it in the repository.\n"
    return f"{title}````{_LANGUAGES.get(path.suffix, 'text')}\n{text}\n````\n"
