"""The list of claims: where the paper makes them, what they say, how they are checked."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from firma.study import claims_behaviour as behaviour
from firma.study import claims_maths as maths
from firma.study import claims_tables as tables
from firma.study.evidence import Evidence
from firma.study.verdicts import Verdict


@dataclass(frozen=True)
class Claim:
    """A claim in our words and the function that judges it; a computed one needs no runs."""

    name: str
    where: str
    says: str
    check: Callable[[Evidence], Verdict]
    computed: bool = False

    @property
    def how(self) -> str:
        """How it is checked: the first sentence of the function that does."""
        inner = self.check.func if isinstance(self.check, partial) else self.check
        return (inner.__doc__ or "").strip().splitlines()[0]


_ABSTRACT, _FINDINGS, _GUIDE = "abstract", "key findings", "deployment table"
CLAIMS: tuple[Claim, ...] = (
    Claim("skew-wins", _ABSTRACT, "FibFL++ beats FedAvg in all 12 label-skew cells", tables.skew_wins),
    Claim("skew-peak", _ABSTRACT, "its largest lead there is 20.7 points (CIFAR-10, K = 1)", tables.skew_peak),
    Claim("highest", _ABSTRACT, "FibFL++ has the highest accuracy in 17 of 28 cells", tables.highest),
    Claim(
        "highest-serverless",
        _ABSTRACT,
        "the same, read as: highest of the server-free methods",
        tables.highest_serverless,
    ),
    Claim(
        "dominant-dirichlet",
        _ABSTRACT,
        "under Dirichlet FibFL++ dominates the server-free methods",
        tables.dominant_dirichlet,
    ),
    Claim("second-or-better", _FINDINGS, "FibFL++ is first or second in most cells", tables.second_or_better),
    Claim("fairest-skew", _FINDINGS, "FibFL++ has the best Gini in 7 of 12 label-skew cells", tables.fairest_in_skew),
    Claim(
        "only-win", _FINDINGS, "digits at K = 1 is the only cell where a proposed method beats FedAvg", tables.only_win
    ),
    Claim("fedavg-leads", _FINDINGS, "FedAvg leads in all 16 IID and Dirichlet cells", tables.averaging_leads),
    Claim("fedrep-collapse", _FINDINGS, "FedRep collapses at Dir 0.1, for want of data", tables.collapse),
    Claim("fedrep-scarcity", _FINDINGS, "its Gini at Dir 0.1 falls as clients hold more data", tables.scarcity),
    Claim("ring-positive", _FINDINGS, "FibFL++ gains over FibFL+ in all 28 cells", tables.ring_always_helps),
    Claim("ring-over-gate", "ablation", "it gains more there than the gate does, in 27 of 28", tables.ring_beats_gate),
    Claim("hierarchy", "discussion", "FibFL++ outranks FibFL and FibFL+ without exception", tables.family_hierarchy),
    Claim(
        "pareto-skew", "discussion", "in label skew FibFL++ is more accurate and fairer than FedAvg", tables.pareto_skew
    ),
    Claim(
        "second-fashion",
        "rankings",
        "FibFL++ is second in all 7 scenarios of Fashion-MNIST",
        partial(tables.second_on, "fashion-mnist"),
    ),
    Claim("second-mnist", "rankings", "the same on MNIST", partial(tables.second_on, "mnist")),
    Claim(
        "rdfl-plateau", "convergence speed", "RDFL's plateau σ is at most 0.0002 on CIFAR-10", behaviour.flat_plateau
    ),
    Claim("steady-full", "convergence speed", "FibFL++'s plateau σ is at most 0.012 on digits", behaviour.steady_full),
    Claim(
        "steadier", "convergence speed", "it is steadier there than FibFL and FibFL+", behaviour.steadier_than_family
    ),
    Claim(
        "fibfl-drop",
        "convergence speed",
        "FibFL loses 34 points in one round (digits, K = 3)",
        behaviour.unstable_plain,
    ),
    Claim("warm-start", _FINDINGS, "RDFL, FibFL and FibFL+ are half-way after round 1", behaviour.warm_start),
    Claim("cold-start", "convergence speed", "FibFL++ starts more slowly than FibFL", behaviour.cold_start),
    Claim("traffic", _FINDINGS, "FibFL++ sends 3 to 5 times what FedAvg sends, as counted", behaviour.traffic_counted),
    Claim("savings-grow", "ring topology", "savings grow with heterogeneity (Fashion-MNIST)", behaviour.savings_grow),
    Claim("savings-max", "ring topology", "the largest saving is 95.5% (MNIST, Dir 0.1)", behaviour.largest_saving),
    Claim("savings-iid", _GUIDE, "2-opt saves under 5% on IID data", behaviour.savings_vanish),
    Claim(
        "savings-dir-0.8",
        _GUIDE,
        "2-opt saves under 25% at Dir 0.8",
        partial(behaviour.savings_between, "dir-0.8", 0, 25),
    ),
    Claim("savings-dir-0.5", _GUIDE, "40 to 49% at Dir 0.5", partial(behaviour.savings_between, "dir-0.5", 40, 49.5)),
    Claim("savings-dir-0.1", _GUIDE, "61 to 96% at Dir 0.1", partial(behaviour.savings_between, "dir-0.1", 60.5, 96.5)),
    Claim("savings-skew-1", _GUIDE, "62 to 77% at K = 1", partial(behaviour.savings_between, "skew-1", 61.5, 77.5)),
    Claim("savings-skew-3", _GUIDE, "30 to 42% at K = 3", partial(behaviour.savings_between, "skew-3", 29.5, 42.5)),
    Claim("guide-iid", _GUIDE, "FedAvg is best on IID data", partial(tables.best_under, "iid", ("fedavg",))),
    Claim(
        "guide-skew-1",
        _GUIDE,
        "FedRep or FibFL++ is best at K = 1",
        partial(tables.best_under, "skew-1", ("fedrep", "fibfl++")),
    ),
    Claim("guide-gap", _GUIDE, "at K = 1 FibFL++ is within 1.5 points of FedRep", tables.close_to_private_star),
    Claim(
        "guide-skew-2",
        _GUIDE,
        "FedRep or FibFL++ is best at K = 2",
        partial(tables.best_under, "skew-2", ("fedrep", "fibfl++")),
    ),
    Claim(
        "guide-skew-3",
        _GUIDE,
        "FedAvg or FedRep is best at K = 3",
        partial(tables.best_under, "skew-3", ("fedavg", "fedrep")),
    ),
    Claim("guide-small", _GUIDE, "FibFL++ is best in federations of up to 5 clients", tables.small_federation),
    Claim("guide-fairness", _GUIDE, "FibFL++ has the best Gini in more than 40% of cells", tables.fairest_often),
    Claim("guide-unknown", _GUIDE, "FibFL++ is first or second whatever the data", tables.always_second),
    Claim("beats-local", "not asked", "FibFL++ beats training alone in all 28 cells", tables.helps_at_all),
    Claim("golden-sum", "Eq. 3", "the golden pair sums to one", maths.weights_sum_to_one, True),
    Claim("spectral", "lemma 5.1", "golden weights mix faster than equal ones", maths.golden_mixes_faster, True),
    Claim("radius", "lemma 5.1", "with equal weights ρ = γ(1 - cos 2π/N)", maths.symmetric_radius, True),
    Claim("coverage", "proposition 4.6", "⌈N/2⌉ passes reach everybody", maths.everyone_is_reached, True),
    Claim("broadcast", "proposition 4.6", "that equals a server's broadcast", maths.reach_is_like_a_server, True),
    Claim(
        "retention", "Eq. 9", "K calibrated passes leave a client exactly γ of itself", maths.retention_is_exact, True
    ),
    Claim("retention-below", "Eq. 9", "in practice slightly less than γ", maths.retention_falls_below, True),
    Claim(
        "gate-bounds", "corollary 5.2", "gated weights stay within fixed bounds", maths.gated_weights_are_bounded, True
    ),
    Claim("gate-nobody-out", "corollary 5.2", "no neighbour is ever shut out", maths.nobody_is_shut_out, True),
    Claim(
        "private", "proposition 5.7", "heads stay at home and nobody needs a server", maths.private_as_published, True
    ),
    Claim("private-sound", "this package", "the same with the ring's own warm-up", maths.private_as_sound, True),
    Claim(
        "traffic-formula",
        _FINDINGS,
        "FibFL++ sends 3 to 5 times what FedAvg sends, by formula",
        maths.traffic_ratio,
        True,
    ),
)
