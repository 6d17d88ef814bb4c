"""What leaves a client, and how to check it."""

from firma.privacy.message_audit import Audit, Receipt

__all__ = ["Audit", "Receipt"]
