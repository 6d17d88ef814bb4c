"""The methods for people: what each does in one line, its equation and reference, and what never leaves a client."""

from collections.abc import Mapping
from dataclasses import dataclass

from firma.methods import Method


@dataclass(frozen=True, slots=True)
class About:
    """A method for people: what it does, its equation in one line, and who introduced it."""

    does: str
    equation: str
    reference: str


ABOUT: Mapping[str, About] = {
    "local": About("every client trains alone", "w_i ← w_i - η ∇F_i(w_i)", "the baseline of every comparison"),
    "fedavg": About(
        "the server averages the models by size",
        "w ← Σ_i (n_i / n) w_i",
        "McMahan et al. (AISTATS 2017): Communication-Efficient Learning of Deep Networks from Decentralized Data",
    ),
    "fedprox": About(
        "fedavg, with local training held near the server's model",
        "min F_i(w) + (μ/2) ‖w - w_server‖²",
        "Li et al. (MLSys 2020): Federated Optimization in Heterogeneous Networks",
    ),
    "scaffold": About(
        "fedavg, with control variates against client drift",
        "g ← ∇F_i(y) - c_i + c;  c_i ← c_i - c + (x - y_i) / (Kη)",
        "Karimireddy et al. (ICML 2020): SCAFFOLD: Stochastic Controlled Averaging for Federated Learning",
    ),
    "fednova": About(
        "fedavg of updates divided by their number of local steps",
        "w ← w - τ_eff Σ_i (n_i / n) (w - w_i) / τ_i",
        "Wang et al. (NeurIPS 2020): Tackling the Objective Inconsistency Problem in Heterogeneous Federated "
        "Optimization",
    ),
    "fedavg-ft": About(
        "fedavg; each client fine-tunes a copy",
        "w_i = the server's w after a few epochs on F_i",
        "Yu et al. (2020): Salvaging Federated Learning by Local Adaptation",
    ),
    "fedbn": About(
        "fedavg, with private normalisation layers",
        "w ← Σ_i (n_i / n) w_i for all parameters but those of normalisation layers",
        "Li et al. (ICLR 2021): FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
    ),
    "fedper": About(
        "private heads, trained jointly with the extractor",
        "θ ← Σ_i (n_i / n) θ_i;  (θ_i, h_i) ← (θ, h_i) - η ∇F_i(θ, h_i)",
        "Arivazhagan et al. (2019): Federated Learning with Personalization Layers",
    ),
    "fedrep": About(
        "private heads, trained before the extractor",
        "h_i ← argmin F_i(θ, h), then θ_i ← θ - η ∇_θ F_i(θ, h_i);  θ ← Σ_i (n_i / n) θ_i",
        "Collins et al. (ICML 2021): Exploiting Shared Representations for Personalized Federated Learning",
    ),
    "lg-fedavg": About(
        "private extractors under a common head",
        "h ← Σ_i (n_i / n) h_i;  θ_i stays with the client",
        "Liang et al. (2020): Think Locally, Act Globally: Federated Learning with Local and Global Representations",
    ),
    "fedbabu": About(
        "a fixed random head; each client fine-tunes a copy",
        "θ ← Σ_i (n_i / n) (θ - η ∇_θ F_i(θ, h_0));  w_i = fine-tuned (θ, h_0)",
        "Oh et al. (ICLR 2022): FedBABU: Toward Enhanced Representation for Federated Image Classification",
    ),
    "fedetf": About(
        "a fixed head of equal angles between classes",
        "h_k · h_l = -1/(K-1), ‖h_k‖ = 1;  b_i = log class shares;  θ ← Σ_i (n_i / n) θ_i",
        "Li et al. (ICCV 2023): No Fear of Classifier Biases: Neural Collapse Inspired Federated Learning",
    ),
    "ditto": About(
        "fedavg, and a private model held near the server's",
        "v_i ← v_i - η (∇F_i(v_i) + λ (v_i - w))",
        "Li et al. (ICML 2021): Ditto: Fair and Robust Federated Learning Through Personalization",
    ),
    "apfl": About(
        "a private model mixed with the server's, at a learnt ratio",
        "v̄_i = α_i v_i + (1 - α_i) w_i;  α_i ← α_i - η ⟨v_i - w_i, ∇F_i(v̄_i)⟩",
        "Deng et al. (2020): Adaptive Personalized Federated Learning",
    ),
    "pfedme": About(
        "private models through Moreau envelopes of the losses",
        "θ_i(w) = argmin F_i(θ) + (λ/2) ‖θ - w‖²;  w_i ← w_i - ηλ (w_i - θ_i(w_i))",
        "T Dinh et al. (NeurIPS 2020): Personalized Federated Learning with Moreau Envelopes",
    ),
    "per-fedavg": About(
        "a start from which one step of each client goes far (MAML)",
        "w ← w - β Σ_i (I - α ∇²F_i(w)) ∇F_i(w - α ∇F_i(w))",
        "Fallah et al. (NeurIPS 2020): Personalized Federated Learning with Theoretical Guarantees",
    ),
    "feddbe": About(
        "each client's mean of the features stays private",
        "ℓ(h(f_θ(x) + b_i), y) + κ/(2d) ‖m_i - z‖², m_i the mean of f_θ(x), z that of all clients",
        "Zhang et al. (NeurIPS 2023): Eliminating Domain Bias for Federated Learning in Representation Space",
    ),
    "rdfl": About(
        "the plain ring: a quarter of each neighbour's model",
        "w_i ← γ w_i + (1 - γ) (w_left + w_right) / 2",
        "the FIRMA paper's baseline: see CITATION.cff",
    ),
    "fibfl": About(
        "ring with golden-ratio weights and private heads",
        "θ_i ← γ θ_i + (1 - γ) (θ_left / φ + θ_right / φ²)",
        "the FIRMA paper, Algorithm 1: see CITATION.cff",
    ),
    "fibfl+": About(
        "fibfl, in which inaccurate neighbours lose weight",
        "weights of the neighbours: half golden, half by accuracies of at least τ (Eqs. 6 and 7)",
        "the FIRMA paper, Algorithm 2: see CITATION.cff",
    ),
    "fibfl++": About(
        "fibfl+ on an ordered ring, with ⌈N/2⌉ passes per round",
        "θ ← M^⌈N/2⌉ θ, own weight per pass γ_r^(1/⌈N/2⌉), γ_r a cosine from 0.4 to 0.05 (Eqs. 9 and 10)",
        "the FIRMA paper, Algorithm 3: see CITATION.cff",
    ),
    "frame": About(
        "fedetf on a ring; heads are tuned where clients differ",
        "θ ← Σ_i (n_i / n) θ_i under a fixed frame;  h_i = h_frame + s_i (h_tuned - h_frame), s_i = ½ ‖q_i - q‖₁",
        "this project: parts by Li et al. (ICCV 2023), Ren et al. (NeurIPS 2020) and Wortsman et al. (CVPR 2022)",
    ),
    "d-psgd": About(
        "gossip: an average with the neighbours after each round",
        "w_i ← Σ_j W_ij w_j after local training;  W_ij = 1 / (1 + max(d_i, d_j))",
        "Lian et al. (NeurIPS 2017): Can Decentralized Algorithms Outperform Centralized Algorithms?",
    ),
    "gradient-tracking": About(
        "gossip that follows the gradient of the whole federation",
        "y_i ← y_i - η (∇F_i(y_i) + c_i), K times;  x_i ← Σ_j W_ij y_j;  c_i ← c_i - z_i + Σ_j W_ij z_j",
        "Liu et al. (Optim. Methods Softw. 2024): Decentralized Gradient Tracking with Local Steps",
    ),
}


# What an algorithm keeps at the client that no message holds, for people.
_KEPT = {
    "control-variates": "control variate",
    "second-model": "second model",
    "interpolation": "second model",
    "moreau-envelope": "personal model",
    "debiased": "mean of features",
}


def group(row: Method) -> tuple[str, str]:
    """Under which headings a method is listed: whether it needs a server, and what it shares."""
    server = {"none": "Without communication", "star": "With a server"}.get(row.topology, "Without a server")
    shares = {
        "nothing": "",
        "model": "sharing whole models",
        "extractor": "sharing extractors; heads are private",
        "head": "sharing heads; extractors are private",
    }
    return server, shares[row.shares]


def private_parts(row: Method) -> str:
    """What never leaves a client, for people; empty if it sends all that it has."""
    found = {"extractor": ["head"], "head": ["extractor"], "nothing": ["everything"]}.get(row.shares, [])
    if row.private == "norm":
        found = [*found, "normalisation layers"]
    if row.personal != "none":
        found = [*found, "personal head" if row.personal == "tune-head" else "personal model"]
    if isinstance(row.algorithm, str) and row.algorithm in _KEPT:
        found = [*found, _KEPT[row.algorithm]]
    return ", ".join(found)
