"""Heads that are not learnt but derived, the same at every client: a tight frame, or random weights.

A simplex equiangular tight frame is the arrangement of K class vectors that are as far apart as K vectors can be, and
the one that trained classifiers tend to (neural collapse, Papyan et al., PNAS 2020). Fixing it in advance gives all
clients a common target without anybody sending a head: FedETF (Li et al., ICCV 2023), SphereFed (Dong et al., ECCV
2022); random fixed heads: FedBABU (Oh et al., ICLR 2022). The bias corrects for the client's own class shares, as in
balanced softmax (Ren et al., NeurIPS 2020) and logit adjustment (Menon et al., ICLR 2021), but stays at test time.
"""

import math
import warnings
from dataclasses import replace

import torch
from torch import Tensor, nn

from firma.methods import Head, Method
from firma.models.split_model import SplitModel
from firma.seeds import torch_seed


def frame(classes: int, features: int, seed: int) -> Tensor:
    """(K, d) rows of norm 1 with equal angles, cos = -1/(K-1), turned by a rotation drawn from the seed; d ≥ K."""
    drawn = torch.Generator().manual_seed(torch_seed(seed, "tight frame"))
    turned, _ = torch.linalg.qr(torch.randn(features, classes, generator=drawn, dtype=torch.float64))
    centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
    rows: Tensor = math.sqrt(classes / (classes - 1)) * turned @ centred
    return rows.T.float().contiguous()


def log_shares(labels: Tensor, classes: int) -> Tensor:
    """(K,) log((n_c + ½) / (n + ½K)): a client's class shares, with half a sample more of each."""
    counts = torch.bincount(labels.cpu(), minlength=classes).double()
    return torch.log((counts + 0.5) / (len(labels) + 0.5 * classes)).float()


def obstacle(head: nn.Module, task: str) -> str:
    """Why a head cannot be a frame, for people; empty if it can."""
    if task != "classification":
        return f"a frame has one vector for each class, and the task is {task}"
    if type(head) is not nn.Linear:
        return f"a frame replaces a linear head, and this one is {type(head).__name__}"
    if not all(own.requires_grad for own in head.parameters()):
        return "the head is frozen"
    if head.out_features < 2 or head.out_features > head.in_features:
        return (
            f"a frame of {head.out_features} classes needs as many features, and the extractor has {head.in_features}"
        )
    return ""


def with_possible_head(method: Method, model: SplitModel, task: str) -> Method:
    """The method itself; or, where its head cannot be a frame, with private heads that are learnt, and a warning."""
    if method.head != "tight-frame" or not (why := obstacle(model.head, task)):
        return method
    warnings.warn(
        f"{method.name}: {why}; every client learns a private head instead (head=learnt, training=two-phase, "
        "personal=none)",
        UserWarning,
        stacklevel=2,
    )
    return replace(method, head="learnt", training="two-phase", personal="none")


def derived_head(model: SplitModel, kind: Head, bias: str, labels: Tensor, seed: int) -> Tensor:
    """(h,) a client's flat head: the model's own where it is learnt or random, else a frame with the client's bias.

    A random head is that of the model, which all clients draw from the same seed.
    """
    own = model.flat()[model.layout().span("head")]
    if kind != "tight-frame":
        return own
    head = model.head
    assert isinstance(head, nn.Linear)  # `obstacle` was asked
    parts = {"head.weight": frame(head.out_features, head.in_features, seed).reshape(-1)}
    if head.bias is not None:
        prior = log_shares(labels, head.out_features)
        parts["head.bias"] = prior if bias == "prior" else torch.zeros_like(prior)
    names = [piece.name for piece in model.layout().pieces if piece.name.startswith("head")]
    return torch.cat([parts[name] for name in names])
