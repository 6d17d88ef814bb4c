"""The blocks of a document that are executed, in order."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """Code in a language, and what the comment before it says about it."""

    note: str
    language: str
    code: str

    @property
    def commands(self):
        """The words of each command of a shell block."""
        return [shlex.split(line) for line in self.code.splitlines()]


def blocks(path):
    return [Block(*found.groups(default="")) for found in _BLOCK.finditer((ROOT / path).read_text())]


def write_file(block, folder):
    """A block that is the contents of a file."""
    (folder / block.note.removeprefix("file: ")).write_text(block.code)
