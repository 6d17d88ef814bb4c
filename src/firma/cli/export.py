"""`firma export`: a trained model as a file for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from firma.cli.options import Json
from firma.cli.trained_options import Client, Folder, Method, Model, Seed
from firma.errors import unknown

_FORMAT = (
    "safetensors: parameters and buffers by name, with labels and inputs as metadata; torch-export: a program for "
    "torch.export.load; onnx: a program for ONNX runtimes, requires firma[onnx]."
)


def export(
    folder: Folder,
    out: Annotated[Path, typer.Option(help="File to write.")],
    file_format: Annotated[str, typer.Option("--format", help=_FORMAT)] = "safetensors",
    client: Client = None,
    method: Method = None,
    seed: Seed = None,
    model: Model = None,
    json: Json = False,
) -> None:
    """Write a client's trained model into a file. Programs take inputs as stored: scaling is inside.

    Example: firma export results/dir --client 2 --format onnx --out model.onnx
    """
    from firma.cli.console import only_results_on_stdout, print_json
    from firma.export import FORMATS, check_onnx
    from firma.export import export as write
    from firma.trained import load_model

    chosen = next((each for each in FORMATS if each == file_format), None)
    if chosen is None:
        raise unknown("format", file_format, FORMATS)
    if chosen == "onnx":
        check_onnx()
    with only_results_on_stdout(json):
        trained = load_model(folder, client, method, seed, model)
        path = write(trained, out, chosen)
    if json:
        print_json({"file": str(path), "format": chosen, "bytes": path.stat().st_size} | trained.facts)
        return
    typer.echo(f"Written: {path} ({path.stat().st_size / 1000:,.0f} kB), client {trained.client}")
