"""Code by reference: MODULE:FUNCTION, found as `python -m` would find it, and the files that it consists of.

The current folder is searched first, then installed packages. The files of a reference are

- every .py file of the package that the module is in, or the module's file if it is in no package, and
- the files in the same folder (beside that package or file) that these import, directly or through each other.

Nothing else: other installed packages, the standard library and data files are not part of it. Files are found by
reading `import` statements, without running anything, so that they can be compared before code is imported.
"""

import ast
import hashlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from firma.errors import BadInput, unknown

_NAME = r"[^\W\d]\w*"
_REFERENCE = re.compile(rf"({_NAME}(?:\.{_NAME})*):({_NAME}(?:\.{_NAME})*)")
_INSTALLED = ("site-packages", "dist-packages")


@dataclass(frozen=True)
class Reference:
    """MODULE:FUNCTION; both may contain dots."""

    module: str
    function: str

    def __str__(self) -> str:
        return f"{self.module}:{self.function}"

    @property
    def top(self) -> str:
        """The outermost package, or the module itself."""
        return self.module.partition(".")[0]


def parsed(text: str) -> Reference | None:
    """The reference that the text is, or None."""
    found = _REFERENCE.fullmatch(text)
    return Reference(found[1], found[2]) if found else None


@contextmanager
def importable_here() -> Iterator[None]:
    """The current folder is searched for modules, and first: the path of an installed command does not contain it."""
    here = str(Path.cwd())
    added = here not in sys.path
    if added:
        sys.path.insert(0, here)
        invalidate_caches()  # a file that was written a moment ago is found too
    try:
        yield
    finally:
        if added and here in sys.path:
            sys.path.remove(here)


def load(reference: Reference, what: str = "model", kind: str = "function") -> Callable[..., Any]:
    """The function, imported; every reason why it cannot be is one sentence.

    `what` is the option that named it, and `kind` what is expected there: a function or a class.
    """
    module = imported(reference, what)
    try:
        found = reduce(getattr, reference.function.split("."), module)
    except AttributeError:
        fits = callable if kind == "function" else inspect.isclass
        names = [name for name, each in vars(module).items() if fits(each) and not name.startswith("_")]
        own = [name for name in names if getattr(vars(module)[name], "__module__", None) == module.__name__]
        raise _not_defined(reference, own or names, what, kind) from None
    if not callable(found):
        raise BadInput(
            f"{what} {str(reference)!r}: {reference.function} is of type {type(found).__name__}; must be a {kind}"
        )
    return found


def imported(reference: Reference, what: str = "model") -> ModuleType:
    """The module of a reference."""
    with importable_here():
        try:
            return import_module(reference.module)
        except ModuleNotFoundError as error:
            raise _missing(reference, error.name, what) from None
        except Exception as error:  # whatever the user's module does while it is imported
            raise BadInput(
                f"{what} {str(reference)!r}: importing {reference.module} failed ({said(error, reference.module)})"
            ) from error


def said(error: Exception, place: str) -> str:
    """An error in the user's code on one line: type, message, and the last line of that code that it passed."""
    text = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"
    here, trace = None, error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_globals.get("__name__", "")
        if name == place or name.startswith(f"{place.partition('.')[0]}."):
            here = f"{Path(trace.tb_frame.f_code.co_filename).name}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{text}, {here}" if here else text


def exists(module: str) -> bool:
    """Whether a module of that name is installed or in the current folder."""
    with importable_here():
        return module.isidentifier() and _spec(module) is not None


def files(reference: Reference) -> dict[str, str]:
    """SHA-256 of each file of the reference, by its path relative to the folder that it was found in; see above."""
    return {name: hashlib.sha256(raw).hexdigest() for name, raw in sources(reference.module).items()}


def sources(module: str) -> dict[str, bytes]:
    """The files of a module, as `files` names them, and their contents. Nothing is imported."""
    top = module.partition(".")[0]
    with importable_here():
        spec = _spec(top)
    if spec is None:
        raise _missing(Reference(module, ""), top)
    base = _base(spec)
    if base is None:
        raise BadInput(f"model: module {top!r} is not made of .py files, so its code cannot be compared")
    start = _of_package(base, module) or _of_module(base, module)
    if not start:
        raise _missing(Reference(module, ""), module)
    found = set(start) if _is_installed(base) else _with_imports(base, start)
    return {path.relative_to(base).as_posix(): path.read_bytes() for path in sorted(found)}


def user_modules(modules: Iterable[str]) -> list[str]:
    """Of these modules, those whose code is not installed: files of the user's own, beside a script or a notebook."""
    return [name for name in sorted(set(modules)) if _is_own(name)]


def differences(recorded: Mapping[str, str], here: Mapping[str, str], where: str = "recorded") -> list[str]:
    """What distinguishes the files here from the recorded ones, one phrase per file, with the start of each hash."""
    found = []
    for name in sorted({*recorded, *here}):
        mine, theirs = here.get(name), recorded.get(name)
        if mine is None:
            found.append(f"{name} is missing here (sha256 {recorded[name][:12]}… {where})")
        elif theirs is None:
            found.append(f"{name} exists only here, not {where}")
        elif mine != theirs:
            found.append(f"{name} differs (sha256 {mine[:12]}… here, {theirs[:12]}… {where})")
    return found


def _missing(reference: Reference, name: str | None, what: str = "model") -> BadInput:
    """The error for a module that does not exist: the reference's own, or one that it imports."""
    if name is not None and name != reference.module and not reference.module.startswith(f"{name}."):
        return BadInput(
            f"{what}: module {reference.module!r} requires the module {name!r}, which is not installed and not in "
            f"{Path.cwd()}"
        )
    beside = {path.stem for path in Path.cwd().iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    near = get_close_matches(reference.top, sorted(beside), 1)
    hint = f" (did you mean {near[0]!r}?)" if near and near[0] != reference.top else ""
    return BadInput(
        f"{what}: there is no module {reference.module!r}{hint}; it must be installed, or be in the current folder, "
        f"{Path.cwd()}"
    )


def _not_defined(reference: Reference, names: list[str], what: str, kind: str) -> BadInput:
    if not names:
        several = "functions" if kind == "function" else "classes"
        return BadInput(f"{what} {str(reference)!r}: module {reference.module} defines no {several}")
    return unknown(f"{what} {str(reference)!r}: {kind}", reference.function, names)


def _spec(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # __main__ and other modules that were not imported from a file
        return None


def _base(spec: ModuleSpec) -> Path | None:
    """The folder that the top-level package or module lies in."""
    if spec.submodule_search_locations is not None:
        places = list(spec.submodule_search_locations)
        return Path(places[0]).resolve().parent if places else None
    return Path(spec.origin).resolve().parent if spec.has_location and spec.origin else None


def _is_installed(base: Path) -> bool:
    return any(part in _INSTALLED for part in base.parts) or base == Path(ast.__file__).resolve().parent


def _is_own(module: str) -> bool:
    top = module.partition(".")[0]
    if top in ("__main__", "builtins", "firma") or top in sys.stdlib_module_names:
        return False
    spec = _spec(top)
    base = _base(spec) if spec is not None else None
    return base is not None and not _is_installed(base)


def _of_package(base: Path, module: str) -> list[Path]:
    """Every .py file of the outermost regular package of a module; none if it is in no such package."""
    folder = base
    for part in module.split("."):
        folder /= part
        if (folder / "__init__.py").is_file():
            return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)
    return []


def _of_module(base: Path, module: str) -> list[Path]:
    """The file of a module, with those of the packages that it is in."""
    path = base
    found = []
    for part in module.split("."):
        path /= part
        for file in (path / "__init__.py", path.with_name(f"{path.name}.py")):
            if file.is_file():
                found.append(file)
                break
    return found


def _with_imports(base: Path, start: Iterable[Path]) -> set[Path]:
    """The files, and those below `base` that they import."""
    found: set[Path] = set()
    left = list(start)
    while left:
        path = left.pop()
        if path not in found:
            found.add(path)
            left += (file for name in _imported(base, path) for file in _of_module(base, name))
    return found


def _imported(base: Path, path: Path) -> Iterator[str]:
    """The full names of modules that a file may import: `from a import b` may mean the module a.b."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        raise BadInput(f"model: {path.relative_to(base)} is not valid Python ({error})") from None
    package = path.relative_to(base).parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*above, *([node.module] if node.module else [])])
            yield from (name for name in (origin, *(f"{origin}.{alias.name}" for alias in node.names)) if name)
