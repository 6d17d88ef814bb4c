"""A coverage-guided fuzz of everything in fuzz_targets.py, by atheris (`pip install atheris==3.0.0`).

    python -m tests.peer.fuzz_coverage CORPUS -max_total_time=3600

CORPUS is a folder that is filled with valid inputs first and with whatever reaches new code after that; other words are
libFuzzer's. docs/fuzzing.md says what was found.
"""

import hashlib
import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["firma.peer", "firma.encoding", "tomllib"], enable_loader_override=False):
    from .fuzz_targets import TARGETS, one, seeds


def plant(folder):
    """The valid inputs, each under its hash."""
    folder.mkdir(parents=True, exist_ok=True)
    for target, raw in seeds():
        whole = bytes([TARGETS.index(target)]) + raw
        (folder / hashlib.sha256(whole).hexdigest()[:16]).write_bytes(whole)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    plant(Path(sys.argv[1]))
    atheris.Setup(sys.argv, lambda raw: one(raw) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
