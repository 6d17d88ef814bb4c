"""Every method's naive algorithm, by its name: the paper's in reference.py, those of related work beside it."""

import reference
import reference_algorithms
import reference_rows

ALGORITHMS = reference.ALGORITHMS | reference_rows.ALGORITHMS | reference_algorithms.ALGORITHMS
