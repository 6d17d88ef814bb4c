"""Claims that need no runs: they follow, or do not follow, from the mixing matrices and the schedule."""

from math import cos, pi

import numpy as np

from firma.data.catalogue import SIZES
from firma.methods import METHODS
from firma.mixing.ring import one_pass
from firma.mixing.spectrum import Matrix, min_influence, power, spectral_radius
from firma.mixing.weights import Row, gated_pair, pair, ring_row
from firma.paper.grid import DATASETS
from firma.paper.judging import ClaimJudgement
from firma.schedule import Gate, passes, plan
from firma.settings import hyper_for
from firma.sweep.result_table import ResultTable
from firma.sweep.runner import parameter_counts

_FULL = METHODS["fibfl++"]
_GATE = Gate(0.35, 0.5)


def _decided(holds: bool, numbers: str) -> ClaimJudgement:
    return ClaimJudgement("holds" if holds else "fails", numbers)


def _ring(clients: int, row: Row) -> Matrix:
    return one_pass(range(clients), [row] * clients)


def weights_sum_to_one(_: ResultTable) -> ClaimJudgement:
    """1/φ + 1/φ² = 1."""
    total = sum(pair("golden"))
    return _decided(abs(total - 1) < 1e-12, f"sum {total:.12g}")


def golden_mixes_faster(_: ResultTable) -> ClaimJudgement:
    """The second eigenvalue of the ring with golden weights is below that with equal weights, N = 10, γ = 0.5."""
    golden, half = (spectral_radius(_ring(10, ring_row(pair(kind), 0.5))) for kind in ("golden", "half"))
    return _decided(golden < half, f"golden {golden:.4f}, half {half:.4f}; smaller is faster")


def symmetric_radius(_: ResultTable) -> ClaimJudgement:
    """ρ = γ(1 - cos 2π/N) for equal weights, as the proof states, compared with the computed radius."""
    stated, found = 0.5 * (1 - cos(2 * pi / 10)), spectral_radius(_ring(10, ring_row(pair("half"), 0.5)))
    return _decided(abs(stated - found) < 1e-6, f"stated {stated:.4f}, computed {found:.4f}")


def _round_matrix(clients: int, retention: float) -> Matrix:
    count = passes(_FULL, clients)
    return power(_ring(clients, ring_row(pair("golden"), retention ** (1 / count))), count)


def everyone_is_reached(_: ResultTable) -> ClaimJudgement:
    """Every client has a non-zero influence on every other after ⌈N/2⌉ passes, N from 3 to 50."""
    reached = [clients for clients in range(3, 51) if min_influence(_round_matrix(clients, 0.4)) > 0]
    return _decided(len(reached) == 48, f"non-zero for {len(reached)} of 48 ring sizes")


def reach_is_like_a_server(_: ResultTable) -> ClaimJudgement:
    """The farthest client's weight in the last round, which mixes most, is at least a hundredth of a server's 1/N."""
    found = {clients: min_influence(_round_matrix(clients, 0.05)) for clients in (5, 10, 20, 50)}
    numbers = ", ".join(f"N={clients}: {weight:.1e}" for clients, weight in found.items())
    first = min_influence(_round_matrix(50, 0.4))
    holds = all(weight >= 0.01 / clients for clients, weight in found.items())
    return _decided(holds, f"{numbers} ({first:.1e} in the first round)")


def retention_is_exact(_: ResultTable) -> ClaimJudgement:
    """The share of its own parameters that a client has after K calibrated passes, compared with γ_r, N = 10."""
    found = {target: float(np.diag(_round_matrix(10, target)).min()) for target in (0.4, 0.05)}
    numbers = ", ".join(f"asked {target}: {share:.4f}" for target, share in found.items())
    return _decided(all(abs(share - target) < 0.005 for target, share in found.items()), numbers)


def retention_falls_below(_: ResultTable) -> ClaimJudgement:
    """Whether the effective share is ever below γ_r; no entry is negative, so it can only be above."""
    found = {target: float(np.diag(_round_matrix(10, target)).min()) for target in (0.4, 0.05)}
    numbers = ", ".join(f"asked {target}: {share:.4f}" for target, share in found.items())
    return _decided(all(share < target for target, share in found.items()), numbers)


def gated_weights_are_bounded(_: ResultTable) -> ClaimJudgement:
    """0.309 ≤ a_L ≤ 0.809 over a grid of both neighbours' accuracies, at least one of them above the threshold."""
    grid = np.linspace(0, 1, 101)
    pairs = [gated_pair(pair("golden"), _GATE, left, right) for left in grid for right in grid]
    lefts = [blend[0] for blend in pairs if blend is not None]
    low, high = min(lefts), max(lefts)
    return _decided(low >= 0.3090 and high <= 0.8091, f"from {low:.4f} to {high:.4f}")


def nobody_is_excluded(_: ResultTable) -> ClaimJudgement:
    """Whether both neighbours have a weight whatever their accuracies; below the threshold neither has."""
    row = ring_row(pair("golden"), 0.5, _GATE, 0.2, 0.2)
    return _decided(min(row.left, row.right) > 0, f"both at 0.2: weights {row.left:g} and {row.right:g}")


def private_as_published(_: ResultTable) -> ClaimJudgement:
    """Rounds of FibFL++, as published, in which a server averages whole models."""
    return _private("published")


def private_as_sound(_: ResultTable) -> ClaimJudgement:
    """The same with the sound switches, where the warm-up averages extractors on the ring."""
    return _private("paper")


def _private(preset: str) -> ClaimJudgement:
    hyper = hyper_for(_FULL.name, preset, {})
    plans = [plan(_FULL, hyper, 10, 30, number) for number in range(30)]
    leaks = sum(each.mixing == "star" or each.shares == "model" for each in plans)
    return _decided(leaks == 0, f"{leaks} of 30 rounds send heads through a server")


def traffic_ratio(_: ResultTable) -> ClaimJudgement:
    """2K·N·p_e over 2N·p, rounded: the bytes of FibFL++ over those of FedAvg."""
    ratios = {}
    for name in DATASETS:
        extractor, head = parameter_counts(name)
        ratios[name] = passes(_FULL, SIZES[name].clients) * extractor / (extractor + head)
    numbers = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    return _decided(all(3 <= round(ratio) <= 5 for ratio in ratios.values()), numbers)
