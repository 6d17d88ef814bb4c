"""A trained model for other programs: safetensors, torch.export or ONNX.

The exported programs take inputs as they are stored: bytes are scaled and features are standardised inside.
"""

import json
import logging
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from firma.errors import BadInput, unknown
from firma.trained import TrainedModel

Format = Literal["safetensors", "torch-export", "onnx"]
FORMATS: tuple[Format, ...] = get_args(Format)
ENDINGS: Mapping[Format, str] = {"safetensors": ".safetensors", "torch-export": ".pt2", "onnx": ".onnx"}
FACTS = "firma.json"  # the name of what says labels, columns and inputs, within the file
_ONNX_PACKAGES = ("onnx", "onnxscript")


class WholeModel(nn.Module):
    """Extractor and head as one module that takes inputs (n, …) as they are stored and returns outputs (n, K)."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, trained: TrainedModel) -> None:
        super().__init__()
        model, standardiser = trained.model.copy(), trained.standardiser
        self.extractor, self.head = model.extractor, model.head
        self._tokens, self._standardised = model.inputs == "int64", standardiser is not None
        self._scale = trained.inputs.scale
        if standardiser is not None:  # in float64, as the training data were standardised
            self.register_buffer("mean", torch.from_numpy(standardiser.mean.copy()))
            self.register_buffer("deviation", torch.from_numpy(standardiser.deviation.copy()))
        self.eval().requires_grad_(False)

    def forward(self, stored: Tensor) -> Tensor:
        """Outputs (n, K) of the head."""
        if self._tokens:
            seen = stored.long()
        elif self._standardised:
            seen = ((stored.double() * self._scale - self.mean) / self.deviation).float()
        else:
            seen = stored if stored.dtype == torch.float32 else stored.float() * self._scale
        outputs: Tensor = self.head(self.extractor(seen))
        return outputs


def export(trained: TrainedModel, path: Path, kind: Format) -> Path:
    """Write the model into a file of that format, complete or not at all; a file that exists is not replaced."""
    if kind not in FORMATS:
        raise unknown("format", kind, FORMATS)
    if kind == "onnx":
        check_onnx()
    if path.exists():
        raise BadInput(f"out = {str(path)!r}: already exists; choose another name")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{path.name}.") as folder:
            draft = Path(folder) / path.name
            if kind == "safetensors":
                _safetensors(trained, draft)
            else:
                (_torch_export if kind == "torch-export" else _onnx)(trained, draft)
            draft.rename(path)
    except OSError as error:
        raise BadInput(f"out = {str(path)!r}: cannot be written ({error.strerror})") from None
    return path


def check_onnx() -> None:
    """Refuse an export to ONNX without the packages that it requires."""
    missing = [name for name in _ONNX_PACKAGES if find_spec(name) is None]
    if missing:
        raise BadInput(f"format = 'onnx': requires {' and '.join(missing)}; install with: pip install 'firma[onnx]'")


def program(trained: TrainedModel) -> "torch.export.ExportedProgram":
    """The model as one program, for any number of samples."""
    with _quiet():
        try:
            return torch.export.export(
                WholeModel(trained), (_example(trained),), dynamic_shapes=({0: torch.export.Dim("batch")},)
            )
        except Exception as error:  # whatever the user's modules do that cannot be traced
            said = str(error).strip().partition("\n")[0]
            raise BadInput(
                f"the model cannot be exported as a program ({type(error).__name__}: {said}); its forward must not "
                "depend on values or on the number of samples: export --format safetensors instead"
            ) from error


def _example(trained: TrainedModel) -> Tensor:
    """Three samples of zeros, as they are stored."""
    dtype = torch.uint8 if str(trained.inputs.dtype) == "uint8" else getattr(torch, trained.model.inputs)
    return torch.zeros(3, *trained.inputs.shape, dtype=dtype)


def _facts(trained: TrainedModel) -> str:
    return json.dumps(trained.facts, ensure_ascii=False)


def _safetensors(trained: TrainedModel, path: Path) -> None:
    """All parameters and persistent buffers by name: extractor.*, head.*; the facts are metadata."""
    parts = (("extractor", trained.model.extractor), ("head", trained.model.head))
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().clone().contiguous()
        for part, module in parts
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, Tensor)
    }
    save_file(tensors, path, metadata={"firma": _facts(trained)})


def _torch_export(trained: TrainedModel, path: Path) -> None:
    whole = program(trained)
    with _quiet():
        torch.export.save(whole, path, extra_files={FACTS: _facts(trained)})


def _onnx(trained: TrainedModel, path: Path) -> None:
    whole = program(trained)
    with _quiet():
        try:
            made: Any = torch.onnx.export(
                whole, dynamo=True, verbose=False, input_names=["inputs"], output_names=["outputs"]
            )
        except Exception as error:  # an operator that ONNX does not have
            said = str(error).strip().partition("\n")[0]
            raise BadInput(
                f"the model cannot be exported to ONNX ({type(error).__name__}: {said}); export --format torch-export "
                "instead"
            ) from error
        made.model.metadata_props["firma"] = _facts(trained)
        made.save(path, external_data=False)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that torch's exporters give about themselves."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
