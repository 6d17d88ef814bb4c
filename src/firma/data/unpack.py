"""From files in one of their usual formats to arrays: find them in a folder or an archive, then decode them."""

import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from firma.data.cache import Arrays
from firma.data.cifar import Read, cifar_forms
from firma.data.idx import idx_names, read_set
from firma.data.known import Known
from firma.errors import BadInput

Form = tuple[str, tuple[frozenset[str], ...], Read]
_LARGEST_MEMBER = 1 << 30
_ARCHIVES = (".tar.gz", ".tgz", ".tar")


def decode(known: Known, path: Path) -> Arrays:
    """The data set from a folder (searched to its depths) or a tar archive that holds its files."""
    forms: tuple[Form, ...] = cifar_forms() if known.layout == "cifar" else (("IDX files", idx_names(), read_set),)
    if not path.exists():
        raise BadInput(f"{path}: there is no such file or folder")
    with _folder(path, frozenset().union(*(names for _, form, _ in forms for names in form))) as folder:
        found = _files(folder)
        lacking = []
        for title, form, read in forms:
            files = [next((found[name] for name in sorted(names) if name in found), None) for names in form]
            missing = [min(names, key=len) for names, file in zip(form, files, strict=True) if file is None]
            if not missing:
                return read(tuple(file for file in files if file is not None))
            lacking.append((len(missing) / len(form), f"{title} without {', '.join(missing)}"))
    raise BadInput(f"{path}: no {known.name} there; nearest are {min(lacking)[1]}")


def unpack(archive: Path, wanted: frozenset[str], target: Path) -> None:
    """Copy the wanted regular files of a tar archive, by their bare names, flat into a folder.

    No path from the archive is ever used, so none can lead outside; links and devices are passed over.
    """
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                if not member.isfile() or name not in wanted:
                    continue
                if member.size > _LARGEST_MEMBER:
                    raise BadInput(f"{archive}: {name} claims {member.size:,} bytes, more than any data set needs")
                source = tar.extractfile(member)
                if source is not None:
                    with source, (target / name).open("wb") as copy:
                        shutil.copyfileobj(source, copy, 1 << 20)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise BadInput(f"{archive}: damaged archive ({error})") from None


@contextmanager
def _folder(path: Path, wanted: frozenset[str]) -> Iterator[Path]:
    """The folder itself, or a temporary one with what an archive holds."""
    if path.is_dir():
        yield path
    elif path.name.endswith(_ARCHIVES):
        with tempfile.TemporaryDirectory(prefix="firma-") as name:
            unpack(path, wanted, Path(name))
            yield Path(name)
    else:
        raise BadInput(f"{path}: give the folder that holds the files, or a .tar.gz")


def _files(folder: Path) -> dict[str, Path]:
    """Every file below a folder by its bare name; of two alike, the one nearer the top."""
    found: dict[str, Path] = {}
    for here, folders, names in os.walk(folder):
        folders.sort()
        for name in names:
            path = Path(here) / name
            if name not in found or len(path.parts) < len(found[name].parts):
                found[name] = path
    return found
