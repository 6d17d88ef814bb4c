"""The user's own modules at the workers of a cluster: source files that are sent there and imported from memory.

Ray sends a model as the names of its classes, and a worker must be able to import them. Installed packages are its own
affair; files beside the user's script or in the current folder are sent from here, so that a worker on another machine
runs the code that this process runs.
"""

import importlib.abc
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

from firma.models.reference import sources, user_modules
from firma.models.split_model import SplitModel

Code = Mapping[str, bytes]  # contents of files, by path


def code_of(models: Iterable[SplitModel], functions: Iterable[object] = ()) -> dict[str, bytes]:
    """The files that the classes of these models, and functions such as a loss, need and that are not installed.

    Empty for torch's own layers.
    """
    parts = (part for model in models for part in (model.extractor, model.head))
    classes = {type(each) for part in parts for each in part.modules()}
    found: dict[str, bytes] = {}
    owners = [each.__module__ for each in classes] + [getattr(each, "__module__", "") for each in functions]
    for module in user_modules(owners):
        found |= sources(module)
    return found


def provide(code: Code) -> None:
    """Make the files importable in this process, before anything else of these names."""
    if code:
        sys.meta_path.insert(0, _Shipped(code))
        importlib.invalidate_caches()


class _Shipped(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads modules among the files."""

    def __init__(self, code: Code) -> None:
        self._code = code

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of that name; a folder of files without an __init__.py is a namespace."""
        del path, target
        file = self._file(fullname)
        if file is not None:
            return importlib.util.spec_from_loader(fullname, self, origin=file, is_package=self.is_package(fullname))
        if any(each.startswith(f"{fullname.replace('.', '/')}/") for each in self._code):
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = []
            return spec
        return None

    def is_package(self, fullname: str) -> bool:
        """Whether the module has modules below it."""
        return (self._file(fullname) or "").endswith("/__init__.py")

    def get_source(self, fullname: str) -> str | None:
        """The text of a module, also for tracebacks."""
        file = self._file(fullname)
        return None if file is None else importlib.util.decode_source(self._code[file])

    def get_code(self, fullname: str) -> CodeType | None:
        """The compiled module; its lines are those of the file."""
        file = self._file(fullname)
        return None if file is None else self.source_to_code(self._code[file], file)

    def _file(self, fullname: str) -> str | None:
        stem = fullname.replace(".", "/")
        return next((name for name in (f"{stem}/__init__.py", f"{stem}.py") if name in self._code), None)
