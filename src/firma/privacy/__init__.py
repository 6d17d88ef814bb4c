"""What leaves a client, and how to check it."""

from firma.privacy.audit import Audit, Receipt

__all__ = ["Audit", "Receipt"]
