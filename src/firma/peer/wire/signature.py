"""The agreed shape of what may travel: the extractor's tensors in torch's layout. A head has no entry."""

import hashlib
from dataclasses import dataclass

from firma.models.split import Layout

FLOAT32 = 1  # what a model's numbers are, whatever they are encoded as on the wire


@dataclass(frozen=True, slots=True)
class Cut:
    """Elements [start, start + count) of one tensor."""

    name: str
    shape: tuple[int, ...]
    start: int
    count: int


@dataclass(frozen=True, slots=True)
class Signature:
    """The extractor's tensors in order; `size` is the number of elements in all of them."""

    tensors: tuple[tuple[str, tuple[int, ...], int], ...]  # name, shape, start in the flat extractor
    size: int

    @property
    def digest(self) -> bytes:
        """(32,) SHA-256 of names, kind and shapes."""
        text = ";".join(f"{name}:{FLOAT32}:{shape}" for name, shape, _ in self.tensors)
        return hashlib.sha256(text.encode()).digest()

    def cuts(self, start: int, count: int) -> list[Cut]:
        """What [start, start + count) of the flat extractor holds of each tensor; empty tensors are left out."""
        ends = [*(begin for _, _, begin in self.tensors[1:]), self.size]
        found = []
        for (name, shape, begin), end in zip(self.tensors, ends, strict=True):
            low, high = max(begin, start), min(end, start + count)
            if low < high:
                found.append(Cut(name, shape, low - begin, high - low))
        return found


def signature(layout: Layout) -> Signature:
    """The signature of a model: its extractor, and nothing else of it."""
    pieces = [piece for piece in layout.pieces if piece.stop <= layout.extractor]
    return Signature(tuple((piece.name, piece.shape, piece.start) for piece in pieces), layout.extractor)
