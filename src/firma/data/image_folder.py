"""Images in folders, one per class: FOLDER/CLASS/IMAGE, and with clients FOLDER/CLIENT/CLASS/IMAGE.

A level of `train` and `test` folders, above the classes or above the clients, separates training and test data. The
images are read twice: their headers first, so that a size that does not fit is found before anything is decoded, then
their pixels, into one array.
"""

import os
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from firma.data.dataset import Array, Dataset, OnProgress
from firma.data.user_arrays import from_arrays
from firma.errors import BadInput

if TYPE_CHECKING:
    from PIL.Image import Image

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".pgm", ".ppm")
TRAIN, TEST = "train", "test"
_HALVES = {TRAIN: TRAIN, TEST: TEST, "val": "val", "valid": "val", "validation": "val"}
_GREY, _COLOUR = ("1", "L", "LA"), ("RGB", "RGBA", "RGBa", "P", "PA", "CMYK", "YCbCr", "HSV", "LAB")
_SIZE = re.compile(r"(\d+)(?:x(\d+))?")
_EVERY = 256  # images between two calls of on_progress
_NAMED = 5  # broken files that an error names


@dataclass(frozen=True)
class ImageFile:
    """An image and what its folders say about it; `half` is train, test or val, "" without such folders."""

    path: Path
    half: str
    client: str
    label: str


def read_image_folder(folder: Path, size: str | None, on_progress: OnProgress, one_class: bool = False) -> Dataset:
    """Images (n, height, width) if all are grey, else (n, 3, height, width), as bytes; `size` such as 32x32 resizes."""
    wanted = _parsed(folder, size)
    files, skipped = find_images(folder)
    if skipped:
        warnings.warn(
            f"dataset = {str(folder)!r}: ignored {len(skipped)} files that are not images, the first is {skipped[0]}",
            UserWarning,
            stacklevel=2,
        )
    halves = _halves(folder, files)
    x = read_images([file.path for file in files], folder, wanted, on_progress)
    labels, clients = (sorted_as_numbers([getattr(file, what) for file in files]) for what in ("label", "client"))
    train, test = (np.array([half == each for half in halves], dtype=bool) for each in (TRAIN, TEST))
    owned = bool(files[0].client)
    if not test.any():
        return from_arrays(x, labels, client=clients if owned else None, name=folder.name, one_class=one_class)
    client, client_test = (clients[train], clients[test]) if owned else (None, None)
    arrays = (x[train], labels[train], x[test], labels[test], client, client_test)
    return from_arrays(*arrays, folder.name, one_class=one_class)


def find_images(folder: Path) -> tuple[list[ImageFile], list[str]]:
    """The images below a folder in the order of their paths, and the other files that are not hidden."""
    found: list[tuple[tuple[str, ...], Path]] = []
    skipped: list[str] = []
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        levels = Path(here).relative_to(folder).parts
        for name in sorted(name for name in names if not name.startswith(".")):
            if name.lower().endswith(ENDINGS):
                found.append((levels, Path(here) / name))
            elif name.lower() not in ("thumbs.db", "desktop.ini"):
                skipped.append(str(Path(*levels, name)))
    if not found:
        raise BadInput(
            f"dataset = {str(folder)!r}: contains no images ({', '.join(ENDINGS)}), no data set of save_to_disk and no "
            "exported split; put images into one subfolder per class"
        )
    return list(_described(folder, found)), skipped


def read_images(
    paths: Sequence[Path], folder: Path, wanted: tuple[int, int] | None, on_progress: OnProgress
) -> NDArray[np.uint8]:
    """All images in one array; every file that cannot be read is named in one error."""
    from PIL import Image

    broken: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        shape = _common_shape(paths, folder, wanted, broken, on_progress)
        _refuse_broken(folder, broken, len(paths))
        pixels = _blank((len(paths), *shape), folder)
        for number, path in enumerate(paths):
            if number % _EVERY == 0:
                on_progress(f"reading {folder.name}", number, len(paths))
            with _noting(path, folder, broken), Image.open(path) as image:
                pixels[number] = pixels_of(image, len(shape) == 3, wanted)
    _refuse_broken(folder, broken, len(paths))
    on_progress(f"reading {folder.name}", len(paths), len(paths))
    return pixels


def _common_shape(
    paths: Sequence[Path], folder: Path, wanted: tuple[int, int] | None, broken: list[str], on_progress: OnProgress
) -> tuple[int, ...]:
    """(height, width) or (3, height, width) of every image, from their headers alone."""
    from PIL import Image

    colour, first, example = False, wanted, folder
    for number, path in enumerate(paths):
        if number % _EVERY == 0:
            on_progress(f"checking {folder.name}", number, len(paths))
        with _noting(path, folder, broken), Image.open(path) as image:
            colour = is_colour(image, f"dataset = {str(folder)!r}: {_relative(path, folder)}") or colour
            size = (image.height, image.width)
            if first is None:
                first, example = size, path
            elif wanted is None and size != first:
                raise BadInput(
                    f"dataset = {str(folder)!r}: images differ in size: {_relative(example, folder)} has "
                    f"{_sides(first)} pixels (height x width), {_relative(path, folder)} has {_sides(size)}; to resize "
                    f"all, pass a size: {folder}:HEIGHTxWIDTH, such as {folder}:32x32"
                )
    size = first or (0, 0)  # without one every file is broken, which is refused
    return (3, *size) if colour else size


def is_colour(image: "Image", name: str) -> bool:
    """Whether an image is more than grey; one with more than eight bits per channel is refused, not cut off."""
    if image.mode in _GREY:
        return False
    if image.mode not in _COLOUR:
        raise BadInput(
            f"{name}: pixels of mode {image.mode}, more than eight bits each, are not supported; convert the images to "
            "8 bits, or save the data as .npz"
        )
    return True


def pixels_of(image: "Image", colour: bool, wanted: tuple[int, int] | None) -> Array:
    """(height, width) or (3, height, width) bytes of one image; transparency is left out."""
    from PIL import Image

    plain = image.convert("RGB" if colour else "L")
    if wanted is not None and (plain.height, plain.width) != wanted:
        plain = plain.resize((wanted[1], wanted[0]), Image.Resampling.BILINEAR)
    values = np.asarray(plain)
    return values.transpose(2, 0, 1) if colour else values


def _parsed(folder: Path, size: str | None) -> tuple[int, int] | None:
    """(height, width) from 32x48 or 32."""
    if size is None:
        return None
    found = _SIZE.fullmatch(size)
    height, width = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not height or not width:
        raise BadInput(
            f"dataset = '{folder}:{size}': {size!r} is not a size of images; must be HEIGHTxWIDTH, such as 32x32"
        )
    return height, width


def _described(folder: Path, found: list[tuple[tuple[str, ...], Path]]) -> Iterator[ImageFile]:
    """Half, client and class of each image by the folders that it lies in; all must lie equally deep."""
    depths = {len(levels): path for levels, path in reversed(found)}
    # A level of halves is one whose every folder is named so: a class may well be called "test".
    place = next((p for p in (0, 1) if all(len(s) > p + 1 and s[p].lower() in _HALVES for s, _ in found)), None)
    names = len(found[0][0]) - (place is not None)
    if len(depths) > 1 or names not in (1, 2):
        shown = " and ".join(_relative(path, folder) for path in list(depths.values())[-2:])
        raise BadInput(
            f"dataset = {str(folder)!r}: cannot tell the classes from the folders of {shown}; images must lie in "
            "CLASS/IMAGE or CLIENT/CLASS/IMAGE, all equally deep, with or without a level of folders train and test"
        )
    for levels, path in found:
        half = "" if place is None else _HALVES[levels[place].lower()]
        rest = [name for number, name in enumerate(levels) if number != place]
        yield ImageFile(path, half, rest[0] if names == 2 else "", rest[-1])


def _halves(folder: Path, files: Sequence[ImageFile]) -> list[str]:
    """Train or test for each image; a folder val takes the place of test where there is none."""
    found = {file.half for file in files}
    if found == {""}:
        return [TRAIN] * len(files)
    if TRAIN not in found:
        raise BadInput(f"dataset = {str(folder)!r}: has folders {', '.join(sorted(found))}, but none called train")
    if {TEST, "val"} <= found:
        warnings.warn(
            f"dataset = {str(folder)!r}: the validation images are not used, only those in train and test",
            UserWarning,
            stacklevel=3,
        )
    return [TEST if file.half == "val" and TEST not in found else file.half for file in files]


def sorted_as_numbers(words: Sequence[str]) -> Array:
    """(n,) names, as integers if all are and are spelled so: class 10 comes after class 9, and 007 stays a name."""
    numbers = all(word.isascii() and word.isdigit() and str(int(word)) == word for word in set(words))
    return np.array([int(word) for word in words]) if numbers else np.array(words)


def _blank(shape: tuple[int, ...], folder: Path) -> NDArray[np.uint8]:
    try:
        return np.empty(shape, np.uint8)
    except MemoryError:
        size = float(np.prod(shape, dtype=object)) / 1e9
        raise BadInput(
            f"dataset = {str(folder)!r}: {shape[0]:,} images of {_sides(shape[-2:])} pixels take {size:.1f} GB, more "
            f"than there is; pass a smaller size: {folder}:HEIGHTxWIDTH"
        ) from None


@contextmanager
def _noting(path: Path, folder: Path, broken: list[str]) -> Iterator[None]:
    """Note a file that cannot be read and go on: one error names them all."""
    from PIL import Image, UnidentifiedImageError

    try:
        yield
    except BadInput:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        broken.append(f"{_relative(path, folder)} (too many pixels)")
    except (OSError, SyntaxError, ValueError, EOFError) as error:  # what pillow raises for damaged files
        why = "not an image" if isinstance(error, UnidentifiedImageError) else str(error)
        broken.append(f"{_relative(path, folder)} ({why})")


def _refuse_broken(folder: Path, broken: Sequence[str], total: int) -> None:
    if broken:
        more = f" and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        raise BadInput(
            f"dataset = {str(folder)!r}: {len(broken)} of {total:,} images cannot be read: "
            f"{', '.join(broken[:_NAMED])}{more}; replace or remove them"
        )


def _relative(path: Path, folder: Path) -> str:
    return str(path.relative_to(folder))


def _sides(size: Sequence[int]) -> str:
    return f"{size[0]}x{size[1]}"
