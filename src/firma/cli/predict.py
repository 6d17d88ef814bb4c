"""`firma predict`: labels and probabilities for new data."""

import csv
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from firma.cli.options import Json
from firma.cli.trained_options import Client, Folder, Method, Model, NewData, Seed
from firma.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

    from firma.trained import TrainedModel


def predict(
    folder: Folder,
    data: NewData,
    client: Client = None,
    method: Method = None,
    seed: Seed = None,
    model: Model = None,
    out: Annotated[Path | None, typer.Option(help="Write the CSV into this file instead of stdout.")] = None,
    json: Json = False,
) -> None:
    """Predict with a client's trained model: CSV with a row number, the label and the probability of each class.

    Labels are spelled as in the training data. A multi-label model gives 0 or 1 and a probability for each label, a
    regression model numbers. Rows are counted from 1.

    Example: firma predict results/dir --data new.csv --client 2 --out predictions.csv
    """
    from firma.cli.console import only_results_on_stdout, print_json
    from firma.trained import load_model, predictions

    if json and out is not None:
        raise BadInput("--json and --out cannot be combined; --json prints on stdout")
    with only_results_on_stdout(out is None):
        trained = load_model(folder, client, method, seed, model)
    batches = _noticed(predictions(trained, data))
    if json:
        with only_results_on_stdout(True):
            rows = [row for outputs in batches for row in _plain(trained, outputs)]
        numbered = [{"row": number} | row for number, row in enumerate(rows, 1)]
        print_json({"client": trained.client, "task": trained.task, "labels": list(trained.labels), "rows": numbered})
        return
    try:
        with _opened(out) as file, only_results_on_stdout(out is None):
            writer = csv.writer(file, lineterminator="\n")
            number = 0
            for outputs in batches:
                if not number:
                    writer.writerow(["row", *_header(trained)])
                for cells in _cells(trained, outputs):
                    number += 1
                    writer.writerow([number, *cells])
            file.flush()
    except BrokenPipeError:  # whoever reads has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if out is not None:
        typer.echo(f"Written: {out}, {number:,} rows")


def _noticed(batches: "Iterable[tuple[Tensor, tuple[str, ...]]]") -> "Iterator[Tensor]":
    """The outputs; what is not used of the file is said once."""
    said = False
    for outputs, left_out in batches:
        if left_out and not said:
            print(f"firma: not used for prediction: {', '.join(left_out)}", file=sys.stderr)
            said = True
        yield outputs


def _header(trained: "TrainedModel") -> list[str]:
    chances = [f"probability_{label}" for label in trained.labels]
    if trained.task == "regression":
        return list(trained.labels)
    return ["label", *chances] if trained.task == "classification" else [*trained.labels, *chances]


def _cells(trained: "TrainedModel", outputs: "Tensor") -> Iterator[list[Any]]:
    """The cells of each row after its number."""
    answers = trained.answers(outputs)
    if trained.task == "regression":
        yield from ([str(value) for value in row] for row in answers)
        return
    first = answers.reshape(len(answers), -1).tolist()
    for words, chances in zip(first, trained.as_probabilities(outputs).tolist(), strict=True):
        yield [*words, *(f"{chance:.6g}" for chance in chances)]


def _plain(trained: "TrainedModel", outputs: "Tensor") -> Iterator[dict[str, Any]]:
    """Each row as plain data."""
    answers = trained.answers(outputs).tolist()
    if trained.task == "regression":
        yield from ({"values": dict(zip(trained.labels, row, strict=True))} for row in answers)
        return
    for answer, chances in zip(answers, trained.as_probabilities(outputs).tolist(), strict=True):
        found = answer
        if trained.task == "multi-label":
            found = [label for label, there in zip(trained.labels, answer, strict=True) if there]
        name = "label" if trained.task == "classification" else "labels"
        yield {name: found, "probabilities": dict(zip(trained.labels, chances, strict=True))}


@contextmanager
def _opened(path: Path | None) -> Iterator[TextIO]:
    """Stdout, or a draft that becomes the file when everything is written."""
    if path is None:
        yield sys.stdout
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise BadInput(f"out = {str(path)!r}: cannot be written ({error.strerror})") from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            yield file
        Path(name).chmod(0o644)  # a temporary file is private, predictions are not
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
