"""A second of the fuzz in fuzz_wire.py."""

from .fuzz_wire import fuzz


def test_the_decoder_bears_a_second_of_mutations():
    tried, refused = fuzz(1.0)
    assert tried > 500
    assert 0 < refused <= tried
