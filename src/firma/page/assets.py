"""The files of the pages: scripts, styles and markup, as they are installed."""

from importlib.resources import files


def static(name: str) -> bytes:
    """A file of the live pages, of which charts, style and common functions also serve reports."""
    return (files("firma.page") / "static" / name).read_bytes()
