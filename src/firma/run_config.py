"""The configuration of a run: each option is spelled once, here.

`firma.run` takes these fields as its parameters, `firma run` as its options and a TOML file as its keys. A new field
with a description is thereby a new parameter, option and key.
"""

import functools
import inspect
import shlex
import textwrap
import tomllib
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec, TypeVar, get_type_hints

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from firma.errors import BadInput, unknown
from firma.live_log import LivePlace
from firma.methods import DEFAULT_METHOD, METHOD_WITHOUT_CLASSES, Method, spelled_out
from firma.settings import AttackName, BackendName, EngineName, Preset, Standardise, Wire, sentence
from firma.tasks.task import TaskChoice

if TYPE_CHECKING:  # loading these would load torch, and `firma run --help` should not have to wait for it
    from firma.data.dataset import DatasetSource
    from firma.engines.engine import RoundOutcome
    from firma.models.build import ModelSource

    OnRound = Callable[[str, int, RoundOutcome], None]
else:
    DatasetSource = ModelSource = OnRound = Any

P = ParamSpec("P")
T = TypeVar("T")
PYTHON_ONLY = ("live", "on_round", "progress")  # fields that neither the command line nor a TOML file can state
_OPTION_OF = {"settings": "set"}  # options that have another name than their field
_PATHS = ("checkpoint", "tensorboard", "mlflow", "bandwidth")
_NOT_REPEATED = ("method", "seed", "seeds", "checkpoint", "address", "recover", "engine", "tensorboard", "mlflow")


@dataclass(frozen=True)
class RunConfig:
    """What to run. Values are checked on construction; an invalid one raises `BadInput`."""

    dataset: Annotated[
        DatasetSource,
        Field(
            description="digits, mnist, fashion-mnist, cifar10; a file: PATH.npz, PATH.csv or PATH.parquet "
            "(PATH.csv:COLUMN names the label column, PATH.csv:A,B several); or a folder: images in one subfolder per "
            "class (FOLDER:32x32 resizes them), Hugging Face datasets on disk, or an exported split. From Python "
            "also a Dataset, arrays (x, y) or (x, y, x_test, y_test), or a torch Dataset."
        ),
    ] = "digits"
    scenario: Annotated[
        str | None,
        Field(
            description="iid, dir-ALPHA, skew-K, quantity-ALPHA, rotate-DEGREES or natural. "
            "Default: natural if the data set names clients, else skew-1, or dir-0.5 where there are fewer than three "
            "classes."
        ),
    ] = None
    method: Annotated[
        str | Method | Sequence[str | Method] | None,
        Field(
            description="A method (firma methods lists them), one with changed columns such as fibfl++:order=given, "
            "paper for the seven of the paper's study, or all; repeatable. "
            f"Default: {DEFAULT_METHOD}; {METHOD_WITHOUT_CLASSES} for regression and for several labels per sample."
        ),
    ] = None
    _: KW_ONLY
    clients: Annotated[
        int | None,
        Field(
            ge=1, description="Number of clients. Default: as in the paper; for own data, those that it names, else 10."
        ),
    ] = None
    rounds: Annotated[
        int | None, Field(ge=1, description="Number of rounds. Default: as in the paper; for own data, 30.")
    ] = None
    drift: Annotated[
        str | None,
        BeforeValidator(lambda value: None if value == "none" else value),
        Field(
            description="Data that change over rounds: label-shift (class proportions move to a second draw), "
            "new-classes or new-classes-K (classes that nobody has at first), rotate-DEGREES (inputs are rotated "
            "further and further); gradually, or with @ROUND, such as label-shift@15, in that round. Default: none."
        ),
    ] = None
    participation: Annotated[
        float,
        Field(
            gt=0, le=1,
            description="Share of the clients that take part in each round, drawn at random by seed and round; the "
            "others neither train nor communicate.",
        ),
    ] = 1.0  # fmt: skip
    attack: Annotated[
        AttackName,
        Field(
            description="What dishonest clients do, in simulation: sign-flip, noise, scaled or lying-accuracy (send "
            "other parameters than they trained), or label-flip (train on wrong labels)."
        ),
    ] = "none"
    attackers: Annotated[
        int, Field(ge=0, description="Number of dishonest clients, drawn by seed; metrics also cover the honest alone.")
    ] = 0
    seed: Annotated[
        int, Field(ge=0, description="Seed of initial weights and batches; with several seeds, the first one.")
    ] = 0
    seeds: Annotated[int, Field(ge=1, description="Number of seeds; the table shows mean ± standard deviation.")] = 1
    preset: Annotated[
        Preset,
        Field(
            description="recommended: hyperparameters chosen on validation data; paper: those of the paper; published: "
            "every setting as in the published study."
        ),
    ] = "recommended"
    settings: Annotated[
        Mapping[str, Any],
        BeforeValidator(lambda value: {} if value is None else value),
        Field(description="Change a setting, such as rate=0.001; repeatable."),
    ] = field(default_factory=dict)
    standardise: Annotated[
        Standardise | None,
        Field(
            description="per-client: scale each feature of a table, or each channel of images, to mean 0 and deviation "
            "1 by the client's own training data; constants: by those that are usual for mnist, fashion-mnist and "
            "cifar10; none: inputs as they are, the default. The same as the setting of this name."
        ),
    ] = None
    model: Annotated[
        ModelSource,
        Field(
            description="mlp, cnn, resnet or transformer (firma models shows their parameters), or your own: "
            "MODULE:FUNCTION. From Python also a pair of modules (extractor, head), one module with head, or a "
            "function that returns either."
        ),
    ] = "mlp"
    model_set: Annotated[
        Mapping[str, Any],
        BeforeValidator(lambda value: {} if value is None else value),
        Field(description="Set a parameter of the model, such as width=64; repeatable."),
    ] = field(default_factory=dict)
    head: Annotated[
        str | None,
        Field(
            description="The head of a model that is one module: the name of its last layer, such as fc or "
            "classifier.1. It stays with the client; the rest is the extractor."
        ),
    ] = None
    task: Annotated[
        TaskChoice,
        Field(
            description="classification, multi-label (targets are a matrix of 0 and 1) or regression (numbers). "
            "auto: as the targets look."
        ),
    ] = "auto"
    loss: Annotated[
        str | Callable[..., Any] | None,
        Field(
            description="A loss of your own, PACKAGE.MODULE:FUNCTION, called as function(outputs, targets). Default: "
            "cross-entropy, binary cross-entropy or squared error, by task."
        ),
    ] = None
    metric: Annotated[
        Sequence[str | Callable[..., Any]],
        BeforeValidator(lambda value: () if value is None else (value,) if isinstance(value, str) else value),
        Field(description="A metric of your own, PACKAGE.MODULE:FUNCTION, called as --loss is; repeatable."),
    ] = ()
    train_curves: Annotated[
        bool, Field(description="Also record loss and main metric on the training data, per round and client.")
    ] = False
    device: Annotated[
        str,
        BeforeValidator(lambda value: str(value) if type(value).__name__ == "device" else value),  # a torch.device
        Field(description="A torch device, such as cuda."),
    ] = "cpu"
    workers: Annotated[
        int | None, Field(ge=1, description="Number of clients trained in parallel. Default: one per core.")
    ] = None
    backend: Annotated[
        BackendName,
        Field(
            description="auto: compiled kernels for models that they support, else autograd; autograd: always autograd."
        ),
    ] = "auto"
    audit: Annotated[
        bool, Field(description="Exchange real messages, record each one and report what it contained.")
    ] = False
    engine: Annotated[
        EngineName,
        Field(
            description="simulation: in this process; ray: on a Ray cluster, whose workers take about ten seconds to "
            "start. ray requires pip install 'firma[ray]'."
        ),
    ] = "simulation"
    address: Annotated[
        str | None,
        Field(
            description="The Ray cluster to run on, HOST:PORT or auto. Default: RAY_ADDRESS, else a new local cluster."
        ),
    ] = None
    checkpoint: Annotated[
        str | Path | None,
        Field(
            description="Save each round in this folder; after an interruption the same command continues from there."
        ),
    ] = None
    recover: Annotated[
        int,
        Field(
            ge=0,
            description="With ray: save state every N rounds, to recover from a lost worker; 0: start over instead.",
        ),
    ] = 1
    wire: Annotated[
        Wire,
        Field(
            description="Encoding of parameters in messages: float32, bfloat16 (half the bytes) or int8 (a quarter)."
        ),
    ] = "float32"
    graph: Annotated[
        str | Path | tuple[tuple[int, int], ...] | None,
        Field(
            description="A file with the edges of your own graph, two client numbers per line, for methods with "
            "topology=edges. From Python also a list of pairs."
        ),
    ] = None
    order: Annotated[
        str | Path | tuple[int, ...] | None,
        Field(
            description="The order of the clients on the ring, such as 3,1,0,2, or a file that holds it, for methods "
            "with order=given. Default: 0, 1, 2, … From Python also a list."
        ),
    ] = None
    bandwidth: Annotated[
        str | Path | None,
        Field(
            description="A CSV file with Mbit/s between clients, one row and one column per client, for methods with "
            "order=bandwidth: the slowest link of the ring becomes as fast as possible."
        ),
    ] = None
    tensorboard: Annotated[
        str | Path | None,
        Field(
            description="Write curves for TensorBoard into this folder, while the run trains. Requires "
            "pip install 'firma[tensorboard]'."
        ),
    ] = None
    mlflow: Annotated[
        str | Path | None,
        Field(
            description="Record the run in MLflow: URI of a tracking server, or a folder. Requires "
            "pip install 'firma[mlflow]'."
        ),
    ] = None
    live: Annotated[
        str | Path | LivePlace | None,
        Field(
            description="Write progress into live.jsonl in this folder, which firma watch FOLDER shows in a browser."
        ),
    ] = field(default=None, repr=False, compare=False)
    progress: Annotated[
        bool | None, Field(description="Whether to show progress on stderr. Default: only in notebooks.")
    ] = field(default=None, repr=False, compare=False)
    on_round: Annotated[OnRound | None, Field(description="Called after each round with (method, seed, outcome).")] = (
        field(default=None, repr=False, compare=False)
    )
    path: InitVar[str | None] = None  # version 0.1's name of `backend`
    set: InitVar[Mapping[str, Any] | None] = None  # the TOML file's name of `settings`

    def __post_init__(self, path: str | None, set: Mapping[str, Any] | None) -> None:  # noqa: A002
        """Check each field, then what cannot be combined."""
        if path is not None:
            warnings.warn("path is deprecated; use backend", FutureWarning, stacklevel=3)
            object.__setattr__(self, "backend", path)
        if set is not None:
            object.__setattr__(self, "settings", {**set, **self.settings})
        _check_types(self)
        for name, adapter in _adapters().items():
            try:
                object.__setattr__(self, name, adapter.validate_python(getattr(self, name)))
            except ValidationError as error:
                raise BadInput(sentence(error, name)) from None
        if self.standardise is not None:  # an option, because tables need it often; what a run records is the setting
            if self.settings.get("standardise", self.standardise) != self.standardise:
                raise BadInput(
                    f"standardise = {self.standardise!r}, but settings have standardise = "
                    f"{self.settings['standardise']!r}; set one of them"
                )
            object.__setattr__(self, "settings", {**self.settings, "standardise": self.standardise})
        _check_combinations(self)

    @property
    def methods(self) -> tuple[str | Method, ...]:
        """The methods asked for, one after another; `all` stands for every row, `paper` for those of the paper."""
        asked = DEFAULT_METHOD if self.method is None else self.method
        return spelled_out((asked,) if isinstance(asked, str | Method) else tuple(asked))

    def with_method(self, task: str) -> "RunConfig":
        """The configuration itself; where it names no method, with the default of the task."""
        if self.method is not None:
            return self
        return replace(self, method=DEFAULT_METHOD if task == "classification" else METHOD_WITHOUT_CLASSES)

    def as_options(self) -> dict[str, Any]:
        """The options as plain data, by the names that a TOML file uses."""
        options = {option: getattr(self, name) for option, name in option_fields().items()}
        names = [each if isinstance(each, str) else each.name for each in self.methods]
        options |= {"loss": self.loss and _reference(self.loss), "metric": [_reference(each) for each in self.metric]}
        model = self.model if isinstance(self.model, str) else type(self.model).__name__
        paths = {name: str(path) for name in _PATHS if (path := getattr(self, name)) is not None}
        paths |= {name: str(path) for name in ("graph", "order") if isinstance(path := getattr(self, name), Path)}
        return options | {"method": names, "model": model} | paths


def takes_fields_of(
    config: Callable[P, RunConfig],
) -> Callable[[Callable[[RunConfig], T]], Callable[P, T]]:
    """Give a function of a configuration the fields of the configuration as its parameters, with their descriptions.

    Type checkers and editors see the fields through the constructor `config`, so that no signature is written twice.
    """

    def decorate(function: Callable[[RunConfig], T]) -> Callable[P, T]:
        @functools.wraps(function)
        def wrapped(*values: P.args, **fields: P.kwargs) -> T:
            for name in fields:
                if name not in accepted:
                    raise TypeError(str(unknown(f"firma.{function.__name__}: parameter", name, descriptions())))
            return function(config(*values, **fields))

        accepted = inspect.signature(config).parameters
        hints, found = get_type_hints(config), accepted.values()
        shown = [each.replace(annotation=hints[each.name]) for each in found if each.name in descriptions()]
        wrapped.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        lines = (
            textwrap.fill(f"{name}: {text}", 110, initial_indent="    ", subsequent_indent="        ")
            for name, text in descriptions().items()
        )
        wrapped.__doc__ = f"{inspect.getdoc(function)}\n\n" + "\n".join(lines)
        return wrapped

    return decorate


def option_fields() -> dict[str, str]:
    """The options of the command line, which are the keys of a TOML file, and the field that each one fills."""
    names = (each.name for each in fields(RunConfig) if each.name not in PYTHON_ONLY)
    return {_OPTION_OF.get(name, name): name for name in names}


@functools.cache
def descriptions() -> dict[str, str]:
    """What each field means, in one sentence or two."""
    return {
        name: next(extra.description or "" for extra in hint.__metadata__ if isinstance(extra, FieldInfo))
        for name, hint in _hints().items()
    }


def stated(options: Mapping[str, Any]) -> dict[str, Any]:
    """Of the options of a command as plain data, those that repeat one of its runs, once method and seed are added.

    Data that came from Python have no name to repeat them by.
    """
    usual = {each.name: each.default for each in fields(RunConfig) if each.name not in ("dataset", "preset")}
    return {
        name: value
        for name, value in options.items()
        if name not in _NOT_REPEATED and value is not None and value != usual.get(name)
    }


def command_line(options: Mapping[str, Any]) -> str:
    """The `firma run` command with these options."""
    text = ["firma", "run"]
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            for entry, each in value.items():
                text += [flag, f"{entry}={each}"]
        elif isinstance(value, list | tuple):
            for each in value:
                text += [flag, str(each)]
        elif value is True:
            text.append(flag)
        elif value is not False:
            text += [flag, str(value)]
    return shlex.join(text)


def from_options(values: Mapping[str, Any]) -> RunConfig:
    """The configuration that options of the command line or of a TOML file describe."""
    known = option_fields()
    values = {option.replace("-", "_"): value for option, value in values.items()}
    for option in values:
        if option not in known:
            raise unknown("option", option, known)
    return RunConfig(**{known[option]: value for option, value in values.items()})


def read_toml(path: Path) -> dict[str, Any]:
    """The options in a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))  # Windows editors add a mark
    except OSError as error:
        raise BadInput(f"config = {str(path)!r}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # bad TOML or UTF-8, a number of 5000 digits, deep nesting
        raise BadInput(f"config = {str(path)!r}: not valid TOML ({error})") from None


def _reference(source: str | Callable[..., Any]) -> str:
    """A function as it is recorded: by its module and name."""
    if isinstance(source, str):
        return source
    return f"{getattr(source, '__module__', '?')}:{getattr(source, '__qualname__', type(source).__name__)}"


def _check_types(config: RunConfig) -> None:
    """Refuse what pydantic would accept or would explain badly."""
    if config.method is not None and not isinstance(config.method, str | Method | list | tuple):
        raise BadInput(f"method = {config.method!r}: must be a name, a firma.Method, or a list of these")
    for name in ("clients", "rounds", "seed", "seeds", "workers", "recover", "attackers"):
        if isinstance(value := getattr(config, name), bool):
            raise BadInput(f"{name} = {value}: must be a valid integer")
    if config.on_round is not None and not callable(config.on_round):
        raise BadInput(f"on_round = {config.on_round!r}: must be a function of (method, seed, outcome)")
    for name in _PATHS:
        if getattr(config, name) == "":
            raise BadInput(f"{name} = '': must not be empty")


def _check_combinations(config: RunConfig) -> None:
    """Refuse options that contradict each other."""
    if not config.methods:
        raise BadInput("method = []: must name at least one method")
    if config.engine == "ray" and (config.audit or config.device != "cpu" or config.wire != "float32"):
        raise BadInput(
            "--engine ray cannot be combined with --audit, --device or --wire: it trains on CPUs and "
            "exchanges float32; use --engine simulation instead"
        )
    if (config.attack == "none") != (config.attackers == 0):
        raise BadInput(
            f"--attack {config.attack} with --attackers {config.attackers}: an attack requires --attackers 1 or more, "
            "and attackers require --attack"
        )
    if config.engine != "ray" and config.address is not None:
        raise BadInput("--address requires --engine ray")
    if config.checkpoint is not None and not config.recover:
        raise BadInput("--checkpoint requires --recover 1 or more: --recover 0 saves nothing")
    if config.audit and config.checkpoint is not None:
        raise BadInput("--audit cannot be combined with --checkpoint: an audit cannot be resumed")


@functools.cache
def _hints() -> dict[str, Any]:
    hints = get_type_hints(RunConfig, include_extras=True)
    return {each.name: hints[each.name] for each in fields(RunConfig)}


@functools.cache
def _adapters() -> dict[str, TypeAdapter[Any]]:
    return {name: TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)) for name, hint in _hints().items()}
