"""How much of the disk a state folder may take, and what is kept for it.

An eighth of the budget is for log.jsonl with its older parts, an eighth for audit.jsonl with its own, never more than
64 MB each; the rest is for checkpoints. Without a budget the logs have 64 MB each and N + 2 checkpoints are kept, for
the ring of N members may go back some rounds. The two newest rounds are never dropped.
"""

from dataclasses import dataclass
from pathlib import Path

LOG = 64_000_000  # bytes of a log and its older parts together
_LEAST = 100_000
_FEWEST = 2  # checkpoints: the newest, and the one before it that others may still be at


@dataclass(frozen=True, slots=True)
class DiskBudget:
    """Bytes in all; None: no budget."""

    total: int | None = None

    @property
    def log(self) -> int:
        """Bytes of one log with its older parts."""
        return LOG if self.total is None else min(LOG, max(self.total // 8, _LEAST))

    def kept(self, checkpoint: Path, members: int) -> int:
        """How many checkpoints of this size to keep; one more is on the disk while a round is being saved."""
        usual = members + 2
        size = sum(each.stat().st_size for each in checkpoint.rglob("*") if each.is_file())
        if self.total is None or not size:
            return usual
        return max(min((self.total - 2 * self.log) // size - 1, usual), _FEWEST)
