"""`firma watch`: a page in the browser that follows a run, a sweep or a site, read from its folder."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.page.server import Source

_PAGE = (
    "Where to serve the page: PORT, or HOST:PORT. Default: a free port of this machine. Another HOST than this machine "
    "is protected by a token, which is part of the printed address."
)


def watch(
    folder: Annotated[
        Path,
        typer.Argument(
            help="Results folder of firma run --out, sweep or reproduce, finished or not; or state folder of a site."
        ),
    ],
    page: Annotated[str, typer.Option(metavar="[HOST:]PORT", help=_PAGE)] = "0",
    open_: Annotated[
        bool, typer.Option("--open/--no-open", help="Open the page in this machine's browser, if there is a desktop.")
    ] = True,
    until_eof: Annotated[bool, typer.Option("--until-eof", hidden=True)] = False,
) -> None:
    """Show a run, a sweep or a site in the browser and follow it as it goes on. Ctrl-C ends the page, not the run.

    It only reads the folder, so it may start before, during or after the run, in another terminal or on another machine
    that sees the same disk. Results of earlier versions can be looked at, too, as far as they were kept.

    Example: firma run --out results/mine, and in another terminal: firma watch results/mine
    """
    from firma.page.opening import opened
    from firma.page.server import serving

    source = _source(folder)
    with serving(source, page) as served:
        typer.echo(served.url)
        sys.stdout.flush()
        if open_ and sys.stdout.isatty():
            opened(served.url)
        try:
            _wait(until_eof)
        except KeyboardInterrupt:
            return


def _source(folder: Path) -> "Source":
    """What the folder is of."""
    from firma.live_log import LIVE_FILE

    if (folder / "ring.toml").is_file():
        from firma.cli.peer_options import needs_extra

        needs_extra()
        from firma.peer.runtime.site_page import SitePage

        return SitePage(folder)
    from firma.page.run_state import RunState

    if (folder / LIVE_FILE).is_file() and not _has_cells(folder):
        return RunState(folder)
    from firma.sweep.result_folders import holds_results  # these load torch
    from firma.sweep.stored_events import stored_events

    if not holds_results(folder) and not (folder / LIVE_FILE).is_file():
        what = "holds no results and no run in progress" if folder.is_dir() else "does not exist"
        raise BadInput(
            f"folder {str(folder)!r} {what}; pass the --out folder of firma run, sweep or reproduce, or the --state "
            "folder of firma join"
        )
    return RunState(folder, lambda: stored_events(folder))


def _has_cells(folder: Path) -> bool:
    """Whether runs of a sweep may be stored there, without loading what reads them."""
    from firma.live_log import LIVE_FILE

    stored = [each for each in folder.glob("*.jsonl") if each.name != LIVE_FILE]
    return bool(stored) or (folder / "cells").is_dir()


def _wait(until_eof: bool) -> None:
    """Until Ctrl-C, or until whoever started this closes its end of the pipe."""
    if until_eof:
        while sys.stdin.read(1024):
            pass
        return
    while True:
        time.sleep(3600)
