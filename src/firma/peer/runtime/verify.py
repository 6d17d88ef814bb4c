"""Neighbours' extractors scored by this site itself, for a gate that need not believe what it is told."""

from torch import Tensor

from firma.errors import BadInput
from firma.peer.ring_file import Ring
from firma.peer.runtime.event_log import Log
from firma.peer.runtime.local_training import LocalSite
from firma.schedule import RoundPlan


def check_gate(ring: Ring) -> None:
    """Refuse to verify a gate that the method does not have."""
    if ring.row.gate != "yes":
        raise BadInput(f"--verify-gate: method = {ring.method!r} has no gate to verify; leave the option out")


class Verifier:
    """One round's scores; each extractor is scored once when it arrives, however often it is asked for."""

    def __init__(self, site: LocalSite, plan: RoundPlan, log: Log) -> None:
        self._site, self._plan, self._log = site, plan, log
        self._scores: dict[int, tuple[Tensor, float]] = {}

    def __call__(self, sender: int, extractor: Tensor) -> float:
        """Accuracy of the sender's extractor under this site's head."""
        if sender not in self._scores or self._scores[sender][0] is not extractor:
            score = self._site.score(extractor)
            self._scores[sender] = (extractor, score)
            gate = self._plan.gate
            if gate is not None and score < gate.threshold:
                facts = {"member": self._site.ring.names[sender], "round": self._plan.number + 1, "score": score}
                self._log.event("gated", facts)
        return self._scores[sender][1]
