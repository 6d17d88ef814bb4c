"""The live page of a command that trains: started beside it as a process of its own, which ends with it."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from firma.errors import BadInput

Live = Annotated[
    bool,
    typer.Option(
        "--live",
        help="Follow the run in a browser: curves, clients x rounds, the ring, weights, time left. The page is served "
        "on this machine while the command runs; firma watch FOLDER shows it from elsewhere, or later.",
    ),
]
Page = Annotated[
    str | None,
    typer.Option(
        metavar="[HOST:]PORT",
        help="Where --live serves its page. Default: a free port of this machine. Another HOST than this machine is "
        "protected by a token, which is part of the printed address.",
    ),
]


def command_words() -> str:
    """The command as it was typed, without what only shows it."""
    words, given = [], sys.argv[1:]
    while given:
        word = given.pop(0)
        if word == "--page":
            given = given[1:]
        elif word != "--live" and not word.startswith("--page="):
            words.append(word)
    return shlex.join(["firma", *words])


@contextmanager
def live_folder(out: Path | None, wanted: bool) -> Iterator[Path | None]:
    """Where progress is written: the results folder; without one, a temporary folder if it is to be shown."""
    with TemporaryDirectory(prefix="firma-live-") if wanted and out is None else nullcontext() as made:
        yield out if out is not None else Path(made) if made is not None else None


@contextmanager
def live_page(
    folder: Path | None, wanted: bool, address: str | None, session: AbstractContextManager[None]
) -> Iterator[None]:
    """A command's session of live.jsonl, and its page, served by another process; on a terminal, until Ctrl-C."""
    from firma.cli.console import err
    from firma.page.opening import opened
    from firma.progress import interactive

    with ExitStack() as held:
        held.enter_context(session)
        if not wanted or folder is None:
            yield
            return
        with _served(folder, address or "0") as (child, url):
            err.print(f"Live page: {url}", soft_wrap=True, highlight=False, markup=False)
            people = interactive(err) and sys.stdin is not None and sys.stdin.isatty()
            if people:
                opened(url)
            yield
            held.close()  # nothing more will be written
            if people:
                err.print("The live page stays open until Ctrl-C.", highlight=False)
                with suppress(KeyboardInterrupt):
                    child.wait()


@contextmanager
def _served(folder: Path, address: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """`firma watch` as a child, and the address of its page; it ends when its input is closed, however that happens.

    In a session of its own: Ctrl-C ends the run first, and the page when the run has said its last word.
    """
    command = [sys.executable, "-m", "firma", "watch", str(folder), "--no-open", "--until-eof", "--page", address]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as child:
        assert child.stdin is not None  # they are pipes
        assert child.stdout is not None
        assert child.stderr is not None
        try:
            url = child.stdout.readline().strip()
            if not url:
                raise BadInput(child.stderr.read().strip().removeprefix("firma: ") or "the live page did not start")
            yield child, url
        finally:
            child.stdin.close()
            try:
                child.wait(5)
            except subprocess.TimeoutExpired:
                child.kill()
