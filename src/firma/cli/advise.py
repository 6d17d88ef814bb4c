"""`firma advise`: which method to use for a federation, and why."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from firma.cli.options import DATASET_HELP, SCENARIO_HELP, Clients, Json
from firma.errors import BadInput

if TYPE_CHECKING:
    from firma.paper.advice import Advice, Gain
    from firma.paper.federation_profile import Profile


def advise(
    dataset: Annotated[str | None, typer.Option(help=DATASET_HELP)] = None,
    scenario: Annotated[str | None, typer.Option(help=SCENARIO_HELP)] = None,
    counts: Annotated[
        Path | None,
        typer.Option(
            help="CSV file of sample counts, one row per client, one column per class; replaces --dataset and "
            "--scenario."
        ),
    ] = None,
    clients: Clients = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds that you can afford.")] = None,
    results: Annotated[
        Path | None,
        typer.Option(help="Results folder of firma reproduce, used instead of the results that ship with FIRMA."),
    ] = None,
    json: Json = False,
) -> None:
    """Recommend a method for a federation, by the paper's rules and by our own runs.

    A data set that names clients is taken as it is divided among them, unless --scenario says otherwise.

    Example: firma advise --dataset mnist --scenario dir-0.1
    """
    from firma.cli.console import print_json
    from firma.cli.reading import reading
    from firma.data.dataset import load_dataset
    from firma.paper.advice import advise as advice
    from firma.paper.federation_profile import from_counts, from_split
    from firma.paper.published import published, shipped
    from firma.sweep.result_table import result_tables
    from firma.sweep.store import read_results

    if counts is not None and (dataset is not None or scenario is not None):
        raise BadInput("--counts cannot be combined with --dataset or --scenario")
    if counts is not None and clients is not None:
        raise BadInput("--counts cannot be combined with --clients: the file has one row per client")
    if counts is not None:
        profile = from_counts(counts, rounds)
    else:
        with reading() as show:
            source = load_dataset(dataset or "digits", on_progress=show)
        profile = from_split(source, scenario, clients, rounds)
    tables = shipped() if results is None else result_tables(read_results(results))
    found = advice(profile, published(), tables)
    if json:
        print_json(asdict(found) | {"clients": profile.clients, "rounds": profile.rounds, "dataset": profile.dataset})
        return
    _show(found, profile)


def _show(found: "Advice", profile: "Profile") -> None:
    from firma.cli.console import out
    from firma.report.tables import from_to

    def line(text: str) -> None:
        out.print(text, soft_wrap=True, highlight=False, markup=False)

    like = "" if profile.named else "most similar to "
    line(f"{profile.clients} clients, {profile.counts.sum():,} samples, {like}{found.scenario}")
    seeds = f", {from_to(found.seeds)} seed{'s' if max(found.seeds) > 1 else ''}" if found.seeds else ""
    line(f"Use {found.method}, according to {found.source}{seeds}.")
    if found.level:
        line(f"Level with: {', '.join(found.level)} (too close to call).")
    if found.private not in (None, found.method):
        line(f"Best without a server and with private heads: {found.private}.")
    if found.agree is False:
        line(f"The paper disagrees: it recommends {' or '.join(found.paper)}.")
    if found.agree is None and found.seeds:
        line(f"The paper recommends {' or '.join(found.paper)}, which is not among the methods compared.")
    line("Why, according to our runs:")
    for reason in found.own_reasons:
        line(f"  {reason}")
    line("Why, according to the paper:")
    for reason in found.paper_reasons:
        line(f"  {reason}")
    line("Expect:")
    line(f"  compared with training alone: {_points(found.over_local)}; with fedavg: {_points(found.over_fedavg)}")
    line(f"  2-opt saves {found.saving_percent:.1f}% of the ring's cost")
    line(f"  heterogeneity of the split: {found.heterogeneity:.2f} (0: IID, 1: maximum)")
    sent = "depends on your model" if found.bytes_per_round is None else f"{found.bytes_per_round / 1e6:.1f} MB"
    line(f"  sent per round by all clients together: {sent}")
    for warning in found.warnings:
        line(f"Note: {warning}.")


def _points(gain: "Gain | None") -> str:
    """A gain with its interval, whether it is clear, and over which part of the data sets it was measured."""
    if gain is None:
        return "not measured"
    half = "" if gain.half is None else f" ± {gain.half:.1f}"
    some = f"on {gain.datasets} of {gain.of} data sets" if gain.datasets < gain.of else ""
    mean = f"mean of {gain.datasets} data sets" if gain.datasets == gain.of > 1 else ""
    told = [each for each in (some, mean, "" if gain.clear else "too close to call") if each]
    return f"{gain.points:+.1f}{half} points" + (f" ({', '.join(told)})" if told else "")
