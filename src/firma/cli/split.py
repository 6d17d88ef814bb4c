"""`firma split`: how a data set is split among clients, without training."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.cli.options import Changes, Clients, Dataset, Drift, Json, Preset, Scenario, Seed, changes
from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.data.dataset import Dataset as DatasetInMemory
    from firma.data.dataset import OnProgress
    from firma.data.partition import Overview

_MOST_CLASSES = 12  # columns that fit a terminal
_MOST_CLIENTS = 60


def split(
    dataset: Dataset = "digits",
    scenario: Scenario = None,
    drift: Drift = None,
    rounds: Annotated[
        int | None, typer.Option(min=2, help="With --drift: number of rounds. Default: as firma run has it.")
    ] = None,
    clients: Clients = None,
    preset: Preset = "recommended",
    seed: Seed = 0,
    set_: Changes = None,
    out: Annotated[Path | None, typer.Option(help="Also draw the split, to this PNG file.")] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Also write each client's training and test data into this new folder, for other programs."),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format", help="With --export: npz (the default), parquet, or hf (Hugging Face datasets on disk)."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show how a data set is split among clients: training and test samples of each class.

    With --drift, in the first, the middle and the last round.

    Example: firma split --dataset digits --scenario dir-0.1 --out split.png

    Example: firma split --dataset digits --scenario dir-0.1 --export digits-dir-0.1 --format hf
    """
    from firma.cli.console import print_json
    from firma.cli.reading import reading
    from firma.data.dataset import load_dataset
    from firma.data.drift import overviews
    from firma.data.partition import overview

    if export is None and form is not None:
        raise BadInput("--format requires --export")
    if drift is None and rounds is not None:
        raise BadInput("--rounds requires --drift: without it, all rounds have the same split")
    if drift is not None and export is not None:
        raise BadInput("--export cannot be combined with --drift: other programs read one split, not one per round")
    with reading() as show:
        source = load_dataset(dataset, on_progress=show)
        if drift is not None:
            rounds = rounds or source.rounds
            moments = overviews(source, scenario, clients, preset, changes(set_), seed, drift, rounds)
            _show_drift(moments, drift, rounds, out, json)
            return
        found = overview(source, scenario, clients, preset, changes(set_), seed)
        if export is not None:
            _export(source, found, export, form or "npz", show)
    if out is not None:
        _draw(found, out)
    if json:
        print_json(found.as_dict() | ({"exported": str(export)} if export is not None else {}))
    else:
        _show(found, [path for path in (out, export) if path is not None])


def _export(source: "DatasetInMemory", found: "Overview", folder: Path, form: str, show: "OnProgress") -> None:
    from firma.data.exported import export

    facts = {"dataset": found.dataset, "scenario": found.scenario, "preset": found.preset, "split": found.settings}
    export(source, found.partition, found.names, facts | {"dropped": list(found.dropped)}, folder, form, show)


def _draw(found: "Overview", path: Path) -> None:
    from firma.report.data_figures import split_picture

    title = f"{found.dataset}, {found.scenario}, {len(found.names)} clients (preset {found.preset})"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        split_picture(found.train, found.test, found.names, found.labels, title, path)
    except OSError as error:
        raise BadInput(f"out = {str(path)!r}: cannot write this file ({error.strerror})") from None


def _show_drift(moments: "dict[int, Overview]", drift: str, rounds: int, path: Path | None, json: bool) -> None:
    """The split in some rounds, and how far each client's class proportions have moved since the first."""
    from firma.cli.console import out, print_json
    from firma.mixing.ring_order import total_variation

    first = next(iter(moments.values()))
    shares = {number: each.train / each.train.sum(axis=1, keepdims=True) for number, each in moments.items()}
    moved = {number: total_variation(share, shares[1]) for number, share in shares.items()}
    title = f"{first.dataset}, {first.scenario}, drift {drift}, {len(first.names)} clients (preset {first.preset})"
    if path is not None:
        _draw_drift(moments, title, path)
    if json:
        in_rounds = []
        for number, each in moments.items():
            rows = zip(each.as_dict()["clients"], moved[number].tolist(), strict=True)
            in_rounds.append({"round": number, "clients": [row | {"moved": far} for row, far in rows]})
        facts = {name: value for name, value in first.as_dict().items() if name != "clients"}
        print_json(facts | {"drift": drift, "rounds": rounds, "in_rounds": in_rounds})
        return
    out.print(title, soft_wrap=True)
    out.print(
        "Training samples of each class, all training and test samples, and how far the class proportions have moved "
        "since the first round (total variation):",
        soft_wrap=True,
    )
    for number, each in moments.items():
        out.print(f"\nRound {number} of {rounds}")
        _print_table(each, [f"{far:.2f}" for far in moved[number]])
    _print_notes(first, [path] if path is not None else [])


def _draw_drift(moments: "dict[int, Overview]", title: str, path: Path) -> None:
    from firma.report.data_figures import drift_picture

    first = next(iter(moments.values()))
    counts = {f"round {number}": each.train for number, each in moments.items()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        drift_picture(counts, first.names, first.labels, title, path)
    except OSError as error:
        raise BadInput(f"out = {str(path)!r}: cannot write this file ({error.strerror})") from None


def _show(found: "Overview", written: list[Path]) -> None:
    from firma.cli.console import out

    title = f"{found.dataset}, {found.scenario}, {len(found.names)} clients (preset {found.preset})"
    out.print(title, "Training samples of each class, and all training and test samples:", sep="\n", soft_wrap=True)
    _print_table(found)
    _print_notes(found, written)


def _print_table(found: "Overview", moved: list[str] | None = None) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from firma.cli.console import out, print_table

    table = Table(box=SIMPLE_HEAD, padding=0)
    table.add_column("client")
    if found.partition.angles:
        table.add_column("rotated", justify="right")
    few = len(found.labels) <= _MOST_CLASSES
    for label in found.labels if few else ("classes", "most common"):
        table.add_column(label, justify="right")
    for half, counts in (("train", found.train), ("test", found.test)):
        table.add_column(half, justify="right", style="bold", min_width=len(f"{counts.sum():,}"))
    if moved is not None:
        table.add_column("moved", justify="right")
    for place, name in enumerate(found.names[:_MOST_CLIENTS]):
        train, test = found.train[place], found.test[place]
        rotated = [f"{found.partition.angles[place]:g}°"] if found.partition.angles else []
        most = found.labels[int(train.argmax())]
        cells = [str(count or "·") for count in train] if few else [str(int((train > 0).sum())), most]
        far = [] if moved is None else [moved[place]]
        table.add_row(name, *rotated, *cells, f"{train.sum():,}", f"{test.sum():,}", *far)
    blank = [""] * (len(table.columns) - 3 - (moved is not None))
    table.add_section()
    table.add_row("all", *blank, f"{found.train.sum():,}", f"{found.test.sum():,}")
    print_table(table)
    if len(found.names) > _MOST_CLIENTS:
        out.print(f"… and {len(found.names) - _MOST_CLIENTS} more clients: --json shows all.")


def _print_notes(found: "Overview", written: list[Path]) -> None:
    from firma.cli.console import out

    if found.dropped:
        out.print(f"Clients left out, too few samples: {', '.join(found.dropped)} (--set min_samples=1 includes all).")
    if found.columns:
        out.print(f"Features: {', '.join(found.columns)}", soft_wrap=True, highlight=False, markup=False)
    if written:
        out.print(f"Written: {', '.join(str(path) for path in written)}", soft_wrap=True)
