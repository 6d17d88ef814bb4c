"""What identifies an algorithm of the user's own: its settings, and a hash of the code that it consists of."""

import dataclasses
import hashlib
import inspect
from collections.abc import Iterator
from functools import cache
from types import CodeType

from firma.errors import BadInput
from firma.models.reference import sources

_PLAIN = (bool, int, float, str, type(None))


def settings(algorithm: object) -> str:
    """The fields of a dataclass as text, `mu=0.1, rate=1.0`; of any other class, none."""
    if not dataclasses.is_dataclass(algorithm):
        return ""
    found = {each.name: getattr(algorithm, each.name) for each in dataclasses.fields(algorithm)}
    for name, value in found.items():
        if not _is_plain(value):
            raise BadInput(
                f"algorithm {type(algorithm).__qualname__}: its setting {name!r} is of type {type(value).__name__}; "
                "settings identify a run and must be numbers, strings, True, False, None, or tuples of these"
            )
    return ", ".join(f"{name}={value!r}" for name, value in found.items())


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN


@cache
def code_hash(kind: type, root: type) -> str:
    """The start of the SHA-256 of the code of a class and of those that it extends, up to `root`.

    Of code in files, the files of the module (see `models.reference`), with those beside it that they import; of code
    in a script or a notebook, the class alone; empty for classes of this package, which its version identifies.
    """
    own = [each for each in kind.__mro__ if issubclass(each, root) and each is not root and not _is_ours(each)]
    if not own:
        return ""
    digest = hashlib.sha256()
    for module in sorted({each.__module__ for each in own}):
        try:
            files = sources(module) if module != "__main__" else {}
        except BadInput:  # not made of files
            files = {}
        if not files:  # a script, a notebook, a prompt
            files = {each.__qualname__: _text(each) for each in own if each.__module__ == module}
        for name, raw in files.items():
            digest.update(name.encode() + b"\0" + raw)
    return digest.hexdigest()[:16]


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "firma"


def _text(kind: type) -> bytes:
    """The source of a class or, where it was typed into a prompt, its compiled methods."""
    try:
        return inspect.getsource(kind).encode()
    except (OSError, TypeError):
        methods = ((name, getattr(each, "__code__", None)) for name, each in sorted(vars(kind).items()))
        return repr([(name, list(_compiled(code))) for name, code in methods if code is not None]).encode()


def _compiled(code: CodeType) -> Iterator[object]:
    """What a function computes, without line numbers and addresses."""
    yield code.co_code, code.co_names, code.co_varnames
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _compiled(constant)
        else:
            yield repr(constant)
