"""Claims that need no runs: they follow, or do not follow, from the mixing matrices and the schedule."""

from collections.abc import Mapping
from math import cos, pi

import numpy as np

from firma.data.catalogue import SIZES
from firma.methods import METHODS, columns
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
    return _decided(abs(total - 1) < 1e-12, f"the sum is {total:.12g}")


def golden_mixes_faster(_: ResultTable) -> ClaimJudgement:
    """The second eigenvalue of the ring with golden weights is below that with equal weights, N = 10, γ = 0.5."""
    golden, half = (spectral_radius(_ring(10, ring_row(pair(kind), 0.5))) for kind in ("golden", "half"))
    return _decided(
        golden < half, f"ρ is {golden:.4f} with golden weights and {half:.4f} with equal ones; smaller is faster"
    )


def symmetric_radius(_: ResultTable) -> ClaimJudgement:
    """ρ = γ(1 - cos 2π/N) for equal weights, as the proof states, compared with the computed radius."""
    stated, found = 0.5 * (1 - cos(2 * pi / 10)), spectral_radius(_ring(10, ring_row(pair("half"), 0.5)))
    return _decided(abs(stated - found) < 1e-6, f"the formula gives {stated:.4f}, the matrix {found:.4f}")


def _round_matrix(clients: int, retention: float) -> Matrix:
    count = passes(_FULL, clients)
    return power(_ring(clients, ring_row(pair("golden"), retention ** (1 / count))), count)


def everyone_is_reached(_: ResultTable) -> ClaimJudgement:
    """Every client has a non-zero influence on every other after ⌈N/2⌉ passes, N from 3 to 50."""
    reached = [clients for clients in range(3, 51) if min_influence(_round_matrix(clients, 0.4)) > 0]
    return _decided(len(reached) == 48, f"every influence is non-zero for {len(reached)} of 48 ring sizes")


def reach_is_like_a_server(_: ResultTable) -> ClaimJudgement:
    """In the last round, which mixes most, the farthest client weighs at least a hundredth of a server's 1/N at the
    paper's sizes, N = 5 and 10; larger rings are told beside it."""
    found = {clients: min_influence(_round_matrix(clients, 0.05)) for clients in (5, 10, 20, 50)}
    holds = all(found[clients] >= 0.01 / clients for clients in (5, 10))
    beyond = [clients for clients in (20, 50) if found[clients] < 0.01 / clients]
    weights = ", ".join(f"{weight:.1e} with N = {clients}" for clients, weight in found.items())
    said = f"{'holds' if holds else 'fails'} at the paper's sizes" + (
        f" and fails beyond, with {' and '.join(map(str, beyond))} clients" if beyond else ""
    )
    text = (
        f"it {said}: the farthest client weighs {weights}; a hundredth of a server's weight, our criterion, is 0.01/N"
    )
    return ClaimJudgement("holds" if holds else "fails", f"{found[10]:.1e} with N = 10", text)


def retention_is_exact(_: ResultTable) -> ClaimJudgement:
    """(γ^(1/K))^K = γ, as qualified; beside it the share of its own parameters that a client has, N = 10."""
    exact = all(abs((target ** (1 / count)) ** count - target) < 1e-12 for target in (0.4, 0.05) for count in (3, 5))
    found = {target: float(np.diag(_round_matrix(10, target)).min()) for target in (0.4, 0.05)}
    said = "the product of the passes' retentions is γ, as qualified; but neighbours send back what they received"
    return _decided(exact, f"{said}, so that {_kept(found)}")


def retention_falls_below(_: ResultTable) -> ClaimJudgement:
    """Whether the effective share is ever below γ_r; no entry is negative, so it can only be above."""
    found = {target: float(np.diag(_round_matrix(10, target)).min()) for target in (0.4, 0.05)}
    return _decided(all(share < target for target, share in found.items()), _kept(found))


def _kept(found: Mapping[float, float]) -> str:
    return "a client keeps " + " and ".join(f"{share:.4f} for γ = {target}" for target, share in found.items())


def gated_weights_are_bounded(_: ResultTable) -> ClaimJudgement:
    """0.309 ≤ a_L ≤ 0.809 over a grid of both neighbours' accuracies, at least one of them above the threshold."""
    grid = np.linspace(0, 1, 101)
    pairs = [gated_pair(pair("golden"), _GATE, left, right) for left in grid for right in grid]
    lefts = [blend[0] for blend in pairs if blend is not None]
    low, high = min(lefts), max(lefts)
    return _decided(low >= 0.3090 and high <= 0.8091, f"a_L is from {low:.4f} to {high:.4f}")


def bias_is_preserved(_: ResultTable) -> ClaimJudgement:
    """a_L > a_R over the same grid, where both neighbours are above the threshold."""
    grid = np.linspace(_GATE.threshold, 1, 66)
    pairs = [gated_pair(pair("golden"), _GATE, left, right) for left in grid for right in grid]
    found = [blend for blend in pairs if blend is not None]
    against = sum(left <= right for left, right in found)
    blend = gated_pair(pair("golden"), _GATE, 0.36, 1.0)
    assert blend is not None  # both pass the gate
    said = f"with accuracies of 0.36 on the left and 1 on the right, a_R = {blend[1]:.3f} and a_L = {blend[0]:.3f}"
    return _decided(against == 0, f"{said}; a_R is at least a_L in {against} of {len(found)} pairs of accuracies")


def equal_neighbours_give_fibfl(_: ResultTable) -> ClaimJudgement:
    """The gated weights of two equally accurate neighbours, compared with the golden pair."""
    golden = pair("golden")
    blend = gated_pair(golden, _GATE, 1.0, 1.0)
    assert blend is not None  # both pass the gate
    gated, plain = (f"{left:.3f} and {right:.3f}" for left, right in (blend, golden))
    said = f"the weights are {gated}, those of FibFL {plain}, as Remark 4.4 says itself"
    return _decided(abs(blend[0] - golden[0]) < 1e-9, said)


def fixes_come_alone(_: ResultTable) -> ClaimJudgement:
    """How many columns of the design table change from FibFL+ to FibFL++, which Table 13 compares."""
    gated, full = columns(METHODS["fibfl+"]), columns(_FULL)
    changed = [name for name, value in full.items() if gated[name] != value]
    return _decided(len(changed) == 1, f"Table 13 compares FibFL++ with FibFL+, which differ in {', '.join(changed)}")


def nobody_is_excluded(_: ResultTable) -> ClaimJudgement:
    """Whether both neighbours have a weight whatever their accuracies; below the threshold neither has."""
    row = ring_row(pair("golden"), 0.5, _GATE, 0.2, 0.2)
    return _decided(
        min(row.left, row.right) > 0,
        f"with both accuracies at 0.2, below the threshold, the weights are {row.left:g} and {row.right:g}",
    )


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
    return _decided(leaks == 0, f"a server averages whole models, heads included, in {leaks} of 30 rounds")


def traffic_ratio(_: ResultTable) -> ClaimJudgement:
    """2K·N·p_e over 2N·p, rounded: the bytes of FibFL++ over those of FedAvg."""
    ratios = {}
    for name in DATASETS:
        extractor, head = parameter_counts(name)
        ratios[name] = passes(_FULL, SIZES[name].clients) * extractor / (extractor + head)
    numbers = "the ratio is " + ", ".join(f"{ratio:.2f} on {name}" for name, ratio in ratios.items())
    return _decided(all(3 <= round(ratio) <= 5 for ratio in ratios.values()), numbers)
