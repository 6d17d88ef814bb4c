"""`firma data`: put public data sets into the cache, and list them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firma.cli import completion, interruptible
from firma.cli.options import Json
from firma.errors import BadInput, unknown
from firma.progress import Pace, interactive

if TYPE_CHECKING:
    from rich.progress import Progress

    from firma.data.download import Source

Cache = Annotated[
    Path | None, typer.Option(help="The cache folder. Default: $FIRMA_DATA, else firma in the user's cache folder.")
]
commands = typer.Typer(
    help="Download public data sets, and list those that are supported.", no_args_is_help=True, add_completion=False
)


@commands.command()
@interruptible
def get(
    name: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME", help="mnist, fashion-mnist, cifar10 or all.", autocompletion=completion.public_datasets
        ),
    ],
    cache: Cache = None,
    source: Annotated[
        list[str] | None,
        typer.Option(
            help="Download from web, npm or debian; repeatable. Default: all, in this order.",
            autocompletion=completion.words("web", "npm", "debian"),
        ),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--from", help="Import from this folder or .tar.gz file, which contains the published files."),
    ] = None,
    json: Json = False,
) -> None:
    """Download public data sets into the cache and verify them by SHA-256; a cached one is only verified.

    Example: firma data get mnist
    """
    from firma.cli.console import err, out, print_json
    from firma.data.cache import cache_folder
    from firma.data.catalogue import PUBLIC
    from firma.data.download import get as get_set
    from firma.data.download import known_set

    chosen = [known_set(each) for each in (PUBLIC if "all" in name else dict.fromkeys(name))]
    sources = _sources(source)
    if files is not None and len(chosen) > 1:
        raise BadInput(f"--from {str(files)!r} requires exactly one data set, not {len(chosen)}")
    folder, failures, stored = cache_folder(cache), [], []
    for known in chosen:
        with _bar() as bar:
            task, pace = bar.add_task(known.name, total=None), Pace()

            def show(
                what: str, done: int, total: int | None, bar: "Progress" = bar, task: Any = task, pace: Pace = pace
            ) -> None:
                bar.update(task, description=what, completed=done, total=total)
                if bar.disable and pace.due():
                    of = f" of {total / 1e6:,.0f}" if total else ""
                    err.print(f"{what}: {done / 1e6:,.0f}{of} MB", soft_wrap=True, highlight=False, markup=False)

            try:
                fetched = get_set(known, folder, show, sources, files)
            except BadInput as error:
                failures.append(str(error))
                continue
            except KeyboardInterrupt:
                _interrupted(known.name)
                raise typer.Exit(130) from None
        stored.append({"name": known.name, "downloaded": fetched})
        if not json:
            out.print(f"{known.name}: {'stored in' if fetched else 'already in'} {folder}", soft_wrap=True)
    if json:
        print_json({"cache": str(folder), "datasets": stored})
    if failures:
        raise BadInput("\n".join(failures))


@commands.command("list")
@interruptible
def list_sets(cache: Cache = None, json: Json = False) -> None:
    """List the supported data sets: whether each is cached, its size and its licence."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from firma.cli.console import out, print_json, print_table
    from firma.data.cache import cache_folder

    folder = cache_folder(cache)
    rows = _rows(folder)
    if json:
        print_json({"cache": str(folder), "datasets": rows})
        return
    table = Table("name", "cached", "size", "train", "test", "input", "licence", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for row in rows:
        size = f"{row['bytes'] / 1e6:.1f} MB" if row["present"] else "·"
        shape = "x".join(str(side) for side in row["shape"])
        table.add_row(
            row["name"], "yes" if row["present"] else "no", size, f"{row['train']:,}", f"{row['test']:,}", shape,
            row["licence"],
        )  # fmt: skip
    print_table(table)
    out.print(f"Cache: {folder}", soft_wrap=True)


def _interrupted(name: str) -> None:
    """One line on stderr; sets that were stored before, in this command too, stay."""
    from firma.cli.console import err

    err.print(f"firma: interrupted; {name} was not stored, partial files were removed", soft_wrap=True, highlight=False)


def _rows(folder: Path) -> list[dict[str, Any]]:
    from firma.data.cache import present, stored_bytes
    from firma.data.catalogue import DIGITS_LICENCE, PUBLIC
    from firma.data.dataset import digits

    own = digits()
    size = own.x_train.nbytes + own.x_test.nbytes + len(own.y_train) + len(own.y_test)
    facts: dict[str, Any] = {"name": "digits", "title": "handwritten digits, 8x8 grey", "present": True, "bytes": size}
    facts |= {"train": len(own.y_train), "test": len(own.y_test), "shape": list(own.shape), "licence": DIGITS_LICENCE}
    rows = [facts]
    for known in PUBLIC.values():
        there = present(known, folder)
        facts = {"name": known.name, "title": known.title, "present": there}
        facts |= {"bytes": stored_bytes(known, folder) if there else 0, "train": known.train, "test": known.test}
        rows.append(facts | {"shape": list(known.shape), "licence": known.licence})
    return rows


def _sources(names: list[str] | None) -> "list[Source]":
    from firma.data.download import SOURCES

    for name in names or []:
        if name not in SOURCES:
            raise unknown("--source", name, SOURCES)
    return [source for name in names or [] for source in SOURCES if source == name]


def _bar() -> "Progress":
    """Bytes and speed on stderr if it is a terminal; a pulsing bar while the total is unknown."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    from firma.cli.console import err

    columns = (
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeElapsedColumn(),
    )  # fmt: skip
    return Progress(*columns, console=err, transient=True, disable=not interactive(err))
