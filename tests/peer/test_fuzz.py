"""Two seconds of the fuzz in fuzz_wire.py."""

from .fuzz_targets import seeds
from .fuzz_wire import fuzz


def test_valid_inputs_are_taken():
    for target, raw in seeds():
        assert not target(raw), target.__name__


def test_every_reader_bears_two_seconds_of_mutations():
    tried, refused = fuzz(2.0)
    assert set(tried) == {target.__name__ for target, _ in seeds()}
    assert sum(tried.values()) > 500
    assert all(0 < refused[name] <= count for name, count in tried.items())
