"""The blocks of a document that are executed, in order."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
_ANY_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELL = ("console", "sh", "bash", "")


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

    @property
    def typed(self):
        """Each command that a person types, as one line, and what is shown below it.

        Where a block has no prompts, every line is a command.
        """
        code = self.code.replace("\\\n", " ")
        if "$ " not in code:
            return [(line.split("  #")[0].strip(), "") for line in code.splitlines() if line and line[0] != "#"]
        found = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", code, re.MULTILINE)
        return [(line.split("  #")[0].strip(), said) for line, said in found]

    @property
    def executable(self):
        """Whether a reader would run it: Python, or commands."""
        first = self.code.lstrip("$ ").split(" ")[0].strip()
        return self.language == "python" or (
            self.language in _SHELL
            and (self.code.startswith("$ ") or first in ("firma", "python", "make", "pip", "docker", "kubectl", "cd"))
        )


def blocks(path):
    return [Block(*found.groups(default="")) for found in _BLOCK.finditer((ROOT / path).read_text())]


def all_blocks(path):
    """Every fenced block, whatever its language."""
    return [Block(*found.groups(default="")) for found in _ANY_BLOCK.finditer((ROOT / path).read_text())]


def indented_commands(path):
    """The commands in indented blocks, as lines."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / path).read_text(), flags=re.DOTALL | re.MULTILINE)
    text = text.replace("\\\n", " ")
    return [" ".join(found.split()) for found in re.findall(r"^ {4}(?:\$ )?(firma .*)$", text, re.MULTILINE)]


def write_file(block, folder):
    """A block that is the contents of a file."""
    (folder / block.note.removeprefix("file: ")).write_text(block.code)
