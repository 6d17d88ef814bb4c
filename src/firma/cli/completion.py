"""What the Tab key offers for the values of options; nothing here loads torch, NumPy or a data set."""

from collections.abc import Callable, Sequence
from typing import Literal, get_args, get_origin

Completion = Callable[[], Sequence[str]]


def datasets() -> list[str]:
    """The data sets with a name; files are completed by the shell."""
    from firma.data.catalogue import SIZES

    return list(SIZES)


def public_datasets() -> list[str]:
    """What `firma data get` downloads."""
    from firma.data.catalogue import PUBLIC

    return [*PUBLIC, "all"]


def study_datasets() -> list[str]:
    """What `firma reproduce` runs on."""
    return [*datasets(), "all"]


def scenarios() -> list[str]:
    """One or two of each kind; any other number is allowed as well."""
    return ["iid", "dir-0.1", "dir-0.5", "skew-1", "skew-2", "quantity-0.5", "rotate-90", "natural"]


def drifts() -> list[str]:
    """One or two of each kind; other numbers and rounds are allowed as well."""
    return ["label-shift", "label-shift@10", "new-classes", "new-classes-2@10", "rotate-90", "rotate-90@10"]


def methods() -> list[str]:
    """The rows of the design table, and the words for several of them."""
    from firma.methods import METHODS, WORDS

    return [*METHODS, *WORDS]


def method_names() -> list[str]:
    """The rows of the design table."""
    from firma.methods import METHODS

    return list(METHODS)


def topologies() -> list[str]:
    """The ring and the other graphs."""
    from firma.methods import GRAPHS

    return ["ring", *GRAPHS, "all"]


def presets() -> list[str]:
    """The presets."""
    from firma.settings import PRESETS

    return list(PRESETS)


def models() -> list[str]:
    """The built-in models, as in `firma.models.catalogue`, which loads torch."""
    return ["mlp", "cnn", "resnet", "transformer"]


def devices() -> list[str]:
    """The usual kinds of devices."""
    from firma.settings import DEVICES

    return list(DEVICES)


def settings() -> list[str]:
    """KEY=VALUE for every setting: all values where they are words, else the default."""
    from firma.settings import Hyper, Split

    found = []
    for kind in (Hyper, Split):
        for name, field in kind.model_fields.items():
            words = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
            default = "none" if field.default is None else field.default
            found += [f"{name}={value}" for value in words or (default,)]
    return found


def words(*choices: str) -> Completion:
    """A fixed list."""
    return lambda: choices


# By the field of `RunConfig`; fields whose type is a list of words complete these.
OF_FIELD: dict[str, Completion] = {
    "dataset": datasets,
    "scenario": scenarios,
    "drift": drifts,
    "method": methods,
    "model": models,
    "device": devices,
    "settings": settings,
}
