"""Options that choose one trained model, shared by `firma predict`, `firma evaluate` and `firma export`."""

from pathlib import Path
from typing import Annotated

import typer

Folder = Annotated[
    Path, typer.Argument(help="Folder of firma run --out or of result.save, or the --state folder of firma join.")
]
Client = Annotated[
    str | None, typer.Option(help="Client by number or name. May be left out if the folder holds only one.")
]
Method = Annotated[str | None, typer.Option(help="Method, if the folder holds the models of several.")]
Seed = Annotated[int | None, typer.Option(min=0, help="Seed, if the folder holds the models of several.")]
Model = Annotated[
    str | None,
    typer.Option(
        help="MODULE:FUNCTION that builds the model, if it is installed code or that of a ring (to agree to run it), "
        "or if it is now called otherwise."
    ),
]
_FILE = "PATH.csv, PATH.parquet, PATH.npz or PATH.npy; or the name of a public data set, for its test data."
NewData = Annotated[str, typer.Option(help=f"{_FILE} Columns are matched by name; labels are not needed.")]
LabelledData = Annotated[str, typer.Option(help=f"{_FILE} PATH.csv:COLUMN names the label column.")]
