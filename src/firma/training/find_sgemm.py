"""Where the machine's sgemm is: the one inside torch (MKL on x86), else the one that SciPy carries."""

import ctypes
from pathlib import Path

import torch
from numba.extending import get_cython_function_address


def sgemm_address() -> int:
    """Address of Fortran's sgemm with 32-bit integers."""
    for library in sorted((Path(torch.__file__).parent / "lib").glob("*torch_cpu.*")):
        try:
            address = ctypes.cast(ctypes.CDLL(str(library)).sgemm_, ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
        if address:
            return address
    return int(get_cython_function_address("scipy.linalg.cython_blas", "sgemm"))
