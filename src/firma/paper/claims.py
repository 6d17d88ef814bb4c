"""The claims: where the paper makes them, what they say in our words, and how they are checked.

Sections, equations, tables and remarks are numbered as in the printed paper, where all theorem environments share one
counter per section.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from firma.paper import claim_checks as checks
from firma.paper import claim_curves as curves
from firma.paper import claim_figures as stated
from firma.paper import claim_maths as maths
from firma.paper import claim_rings as rings
from firma.paper.judging import ClaimJudgement
from firma.settings import PRESETS
from firma.sweep.result_table import ResultTable

Origin = Literal["paper", "reading", "question"]  # a claim, another reading of one, or a question of ours


@dataclass(frozen=True)
class Claim:
    """A claim in our words and the function that judges it.

    A computed claim needs no runs. One that is about a switch of the published study does not apply where a preset
    changes that switch; `otherwise` says how.
    """

    name: str
    where: str
    statement: str
    judge: Callable[[ResultTable], ClaimJudgement]
    computed: bool = False
    origin: Origin = "paper"
    otherwise: str = ""

    @property
    def how(self) -> str:
        """How it is checked: the first paragraph of the docstring of the function that does it."""
        inner = self.judge.func if isinstance(self.judge, partial) else self.judge
        return " ".join((inner.__doc__ or "").strip().partition("\n\n")[0].split())

    @property
    def asked(self) -> str:
        """The statement, and whose it is where it is not the paper's."""
        marks = {"paper": "", "reading": " (another reading)", "question": " (our question)"}
        return self.statement + marks[self.origin]

    def check(self, table: ResultTable) -> ClaimJudgement:
        """The judgement on one table; a table of runs is known by the label that they share."""
        preset = table.name.partition(" ")[0]
        if self.otherwise and not table.exact and preset in PRESETS and preset != "published":
            return ClaimJudgement("does not apply", "", self.otherwise)
        return self.judge(table)


_COST = (
    "this preset minimises the cosine similarity of neighbours, and the printed savings are those of the dot product"
)
_MIXES = "RDFL mixes under this preset, and does not as published"
_saved = partial(partial, rings.savings_between)
_best = partial(partial, checks.best_under)

# fmt: off
# ruff: noqa: E501
PARTS: Mapping[str, tuple[Claim, ...]] = {
    "Abstract": (
        Claim("skew-wins", "abstract", "FibFL++ is more accurate than FedAvg in all 12 label-skew cases", checks.skew_wins),
        Claim("skew-peak", "abstract", "The largest lead of FibFL++ over FedAvg under label skew is 20.7 points, on CIFAR-10 at K = 1", checks.skew_peak),
        Claim("highest", "abstract", "FibFL++ has the highest accuracy in 17 of 28 cases", checks.highest),
        Claim("highest-serverless", "abstract", "FibFL++ has the highest accuracy of the server-free methods in 17 of 28 cases", checks.highest_serverless, origin="reading"),
        Claim("dominant-dirichlet", "abstract", "Under Dirichlet, FibFL++ is Pareto-dominant among the server-free methods", checks.dominant_dirichlet),
    ),
    "Introduction and theory (Sections 1 to 5)": (
        Claim("fixes-isolated", "Section 1, contribution C5", "The ablation adds Fix A, B and C \"in isolation\"", maths.fixes_come_alone, True),
        Claim("golden-sum", "Equation 3", "The two golden weights sum to one", maths.weights_sum_to_one, True),
        Claim("bias-preserved", "Remark 4.4", "The gate \"always preserves the Fibonacci left-bias direction\"", maths.bias_is_preserved, True),
        Claim("reduces", "Remark 4.3", "Where both neighbours count alike, \"FibFL+ reduces to FibFL\"", maths.equal_neighbours_give_fibfl, True),
        Claim("coverage", "Proposition 4.7", "⌈N/2⌉ passes reach every client", maths.everyone_is_reached, True),
        Claim("broadcast", "Proposition 4.7, proof", "⌈N/2⌉ passes are \"equivalent to a central server's one-round broadcast radius\"", maths.reach_is_like_a_server, True),
        Claim("retention", "Equation 9", "After K calibrated passes the self-weight is γ \"exactly\", \"treating the blend contribution as a fixed external signal\"", maths.retention_is_exact, True),
        Claim("retention-below", "Equation 9", "In practice the effective self-weight is \"slightly below\" γ", maths.retention_falls_below, True),
        Claim("spectral", "Lemma 5.1", "A ring with golden weights mixes faster than one with equal weights", maths.golden_mixes_faster, True),
        Claim("radius", "Lemma 5.1, proof", "With equal weights ρ = γ(1 - cos 2π/N)", maths.symmetric_radius, True),
        Claim("gate-bounds", "Corollary 5.2", "The gated weight of the left neighbour stays within [0.309, 0.809]", maths.gated_weights_are_bounded, True),
        Claim("gate-nobody-out", "Corollary 5.2", "\"Neither neighbour is ever fully excluded\" by the gate", maths.nobody_is_excluded, True),
        Claim("private", "Proposition 5.6", "The heads of FibFL++ are never sent, and no server is needed", maths.private_as_published, True),
        Claim("private-sound", "this package", "With a warm-up on the ring itself, the heads of FibFL++ are never sent, and no server is needed", maths.private_as_sound, True, "question"),
    ),
    "Accuracy and fairness (Section 6.2)": (
        Claim("fedrep-collapse", "Section 6.2", "FedRep collapses at Dir 0.1 on all data sets but MNIST, where data are abundant", checks.fedrep_spares_mnist),
        Claim("heads-lose", "not in the paper", "FedRep loses 20 points or more from IID to Dir 0.1 on every data set", checks.heads_lose, origin="question"),
        Claim("trail-fedavg", "Section 6.2", "On CIFAR-10, IID and Dirichlet, FibFL and FibFL+ trail FedAvg \"by 13-19 pp\"", stated.trail_fedavg),
        Claim("fedavg-fifth", "Sections 6.2 and 6.4", "On CIFAR-10 FedAvg \"drops to 5th\" at K = 1 and K = 2", stated.fedavg_fifth),
    ),
    "Accuracy over rounds (Section 6.3)": (
        Claim("jump", "Section 6.3", "Under label skew FibFL++ jumps up at round 6, the first after the warm-up", curves.jump),
        Claim("jump-order", "Section 6.3", "The jump of FibFL++ at round 6 \"directly reflects\" the \"ring saving engaging fully\": it is due to the 2-opt order", curves.jump_of_order),
        Claim("decay", "Section 6.3", "At Dir 0.1 FibFL++ decays over the later rounds, with \"the static permutation\" of its ring \"becoming misaligned\"", curves.decay),
        Claim("tight-fashion", "Section 6.3", "FedAvg and FibFL++ on Fashion-MNIST are \"the tightest IID convergence race after MNIST-60k\"", stated.tightest_iid),
        Claim("mnist-above", "Section 6.3", "On MNIST \"all methods except FedRep under Dir α=0.1\" operate \"above 0.85 after the initial rounds\"", stated.mnist_above),
        Claim("mnist-gap", "Section 6.3", "On MNIST at K = 1 FedRep and FibFL++ are \"within 1.1 pp by R=30 (0.9839 vs. 0.9828)\"", stated.mnist_gap),
        Claim("fibfl-drop", "Section 6.3", "FibFL loses 34 points in one round on digits at K = 3", curves.unstable_plain),
    ),
    "Rankings (Section 6.4)": (
        Claim("best-overall", "Section 6.4", "On CIFAR-10 at K = 2 FibFL++ is \"best overall, surpassing FedRep\", with 0.6849", stated.best_overall),
        Claim("fedrep-third", "Section 6.4", "On CIFAR-10 FedRep is second at Dir 0.8 and \"drops to 3rd behind FibFL++ by Dir 0.5\"", stated.fedrep_third),
        Claim("second-fashion", "Section 6.4", "FibFL++ is second in all 7 scenarios of Fashion-MNIST", partial(checks.second_on, "fashion-mnist")),
        Claim("second-mnist", "Section 6.4", "FibFL++ is second in all 7 scenarios of MNIST", partial(checks.second_on, "mnist")),
        Claim("mnist-span", "Section 6.4", "On MNIST at K = 3 the span from worst to best is \"only 4.7 pp\"", stated.mnist_span),
    ),
    "Ablation (Section 6.5)": (
        Claim("two-opt-dominant", "Section 6.5", "At Dir 0.1 \"the 2-opt ring topology is the dominant component in three of four datasets\"", rings.two_opt_dominates),
        Claim("ring-over-gate", "Section 6.5", "FibFL++ gains more over FibFL+ than FibFL+ over FibFL in 27 of 28 cases", checks.ring_beats_gate),
        Claim("order-helps", "not in the paper", "Without its 2-opt order FibFL++ is less accurate", rings.order_helps, origin="question"),
    ),
    "Speed and plateaus (Section 6.6)": (
        Claim("warm-start", "Sections 6.6 and 7", "After round 1 the mean accuracy is at least 50 % (R₅₀ = 1): of RDFL on CIFAR-10, of FibFL and FibFL+ everywhere", curves.warm_start),
        Claim("warm-start-half", "Sections 6.6 and 7", "After round 1 the mean accuracy is at least half of the final one: of RDFL on CIFAR-10, of FibFL and FibFL+ everywhere", curves.warm_start_half, origin="reading"),
        Claim("cold-start", "Section 6.6", "FibFL++ starts more slowly than FibFL", curves.cold_start),
        Claim("rdfl-plateau", "Section 6.6", "RDFL's plateau σ is at most 0.0002 on CIFAR-10", curves.flat_plateau, otherwise=_MIXES),
        Claim("rdfl-flat", "Section 7.1", "RDFL's plateau σ is about 0.0001 \"across all conditions\"", curves.flat_everywhere, otherwise=_MIXES),
        Claim("fibfl-sigma", "Section 6.6", "FibFL's plateau σ on digits at K = 3, 0.140, is the largest of all 168", curves.largest_sigma),
        Claim("steady-full", "Section 6.6", "FibFL++'s plateau σ is at most 0.012 in all 7 scenarios of digits", curves.steady_full),
        Claim("steadier", "Section 6.6", "FibFL++ has a smaller plateau σ than FibFL and FibFL+ in all 7 scenarios of digits", curves.steadier_than_family),
        Claim("steadier-tenfold", "Section 6.6", "On digits FibFL++ is 10 to 12 times as steady as FibFL and FibFL+", curves.steadier_tenfold),
    ),
    "Ring costs (Section 6.7)": (
        Claim("savings-grow", "Section 6.7", "On Fashion-MNIST, what 2-opt saves grows with heterogeneity", rings.savings_grow, otherwise=_COST),
        Claim("savings-max", "Section 6.7", "The largest saving by 2-opt is 95.5 %, on MNIST at Dir 0.1", rings.largest_saving, otherwise=_COST),
        Claim("ring-cost", "Section 6.7", "On MNIST at Dir 0.1 2-opt reduces the ring's cost from 1.2812 to 0.0583, in the order 0 8 7 6 9 3 5 2 4 1", rings.ring_cost, otherwise=_COST),
    ),
    "Discussion and key findings (Section 7)": (
        Claim("second-or-better", "Section 7, finding 1", "FibFL++ is first or second in accuracy in most cases", checks.second_or_better),
        Claim("fairest-skew", "Section 7, finding 1", "FibFL++ has the lowest Gini coefficient in 7 of 12 label-skew cases", checks.fairest_in_skew),
        Claim("only-win", "Section 7, finding 1", "FibFL++ on digits at K = 1 is the only case of a proposed method that is more accurate than FedAvg", checks.only_win),
        Claim("fedavg-leads", "Section 7, finding 2", "FedAvg is the most accurate method in all 16 IID and Dirichlet cases", checks.fedavg_leads),
        Claim("traffic-formula", "Section 7, finding 2", "FibFL++ sends 3 to 5 times what FedAvg sends, by formula", maths.traffic_ratio, True),
        Claim("traffic", "Section 7, finding 2", "FibFL++ sends 3 to 5 times what FedAvg sends, as counted", curves.traffic_counted, origin="reading"),
        Claim("fedrep-scarcity", "Section 7, finding 3", "FedRep's Gini coefficient at Dir 0.1 has a \"near-monotone relationship\" to the data per client", checks.scarcity),
        Claim("ring-positive", "Section 7, finding 4", "FibFL++ is more accurate than FibFL+ in all 28 cases", checks.ring_always_helps),
        Claim("trail-full", "Section 7, finding 5", "Under heterogeneity FibFL and FibFL+ \"consistently trail FibFL++ by 2-10 pp\"", stated.trail_full),
        Claim("hierarchy", "Section 7", "FibFL++ is more accurate than FibFL and FibFL+ without exception", checks.family_hierarchy),
        Claim("hierarchy-monotone", "Section 7", "The hierarchy of FibFL, FibFL+ and FibFL++ is \"monotone and exception-free\": FibFL+ is above FibFL", checks.gate_helps),
        Claim("pareto-skew", "Section 7", "Under label skew FibFL++ is more accurate than FedAvg and has a lower Gini coefficient", checks.pareto_skew),
        Claim("beats-local", "not in the paper", "FibFL++ is more accurate than training alone (as published: RDFL) in all 28 cases", checks.helps_at_all, origin="question"),
    ),
    "Deployment (Table 14 and Section 7.1)": (
        Claim("guide-iid", "Table 14", "FedAvg is best on IID data", _best("iid", ("fedavg",))),
        Claim("guide-skew-1", "Table 14", "FedRep or FibFL++ is best at K = 1", _best("skew-1", ("fedrep", "fibfl++"))),
        Claim("guide-gap", "Table 14", "FibFL++ is within 1.5 points of FedRep at K = 1", checks.close_to_fedrep),
        Claim("guide-skew-2", "Table 14", "FedRep or FibFL++ is best at K = 2", _best("skew-2", ("fedrep", "fibfl++"))),
        Claim("guide-fair-2", "Table 14", "FibFL++ has the lowest Gini coefficient at K = 2", checks.fairest_at_two),
        Claim("guide-skew-3", "Table 14", "FedAvg or FedRep is best at K = 3", _best("skew-3", ("fedavg", "fedrep"))),
        Claim("guide-small", "Table 14", "FibFL++ is best in federations of up to 5 clients", checks.small_federation),
        Claim("guide-fairness", "Table 14", "FibFL++ has the lowest Gini coefficient in more than 40 % of the cases", checks.fairest_often),
        Claim("guide-unknown", "Table 14", "FibFL++ is second or better whatever the distribution", checks.always_second),
        Claim("savings-iid", "Section 7.1", "2-opt saves less than 5 % on IID data", _saved("iid", 0, 4.9), otherwise=_COST),
        Claim("savings-dir-0.8", "Table 14", "2-opt saves less than 25 % at Dir 0.8", _saved("dir-0.8", 0, 24.9), otherwise=_COST),
        Claim("savings-dir-0.5", "Table 14", "2-opt saves 40 to 49 % at Dir 0.5", _saved("dir-0.5", 39.5, 49.4), otherwise=_COST),
        Claim("savings-dir-0.1", "Table 14", "2-opt saves 61 to 96 % at Dir 0.1", _saved("dir-0.1", 60.5, 96.4), otherwise=_COST),
        Claim("savings-skew-1", "Table 14", "2-opt saves 62 to 77 % at K = 1", _saved("skew-1", 61.5, 77.4), otherwise=_COST),
        Claim("savings-skew-3", "Table 14", "2-opt saves 30 to 42 % at K = 3", _saved("skew-3", 29.5, 42.4), otherwise=_COST),
    ),
}
# fmt: on
CLAIMS: tuple[Claim, ...] = tuple(claim for part in PARTS.values() for claim in part)
