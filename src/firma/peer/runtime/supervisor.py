"""What systemd, or another supervisor that speaks its protocol, is told: ready, still alive, stopping.

A message is a datagram of lines to the socket in NOTIFY_SOCKET, as in sd_notify(3); without one nothing is sent. With
`WatchdogSec=` in the unit, systemd restarts a process that has not said for so long that it is alive.
"""

import os
import socket
import time
from collections.abc import Mapping
from contextlib import suppress


class Supervisor:
    """Tells whoever started this process how it is; failures to do so are of no account."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._address = environment.get("NOTIFY_SOCKET", "")
        mine = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        limit = environment.get("WATCHDOG_USEC", "") if mine else ""
        self._pause = int(limit) / 2e6 if limit.isdigit() and int(limit) > 0 else None  # half of what is allowed
        self._last = float("-inf")

    def ready(self) -> None:
        """The site listens and can be reached."""
        self._send("READY=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._send(f"STATUS={' '.join(text.split())}")

    def alive(self) -> None:
        """Call often: the watchdog is told as often as it needs to be."""
        now = time.monotonic()
        if self._pause is not None and now - self._last >= self._pause:
            self._last = now
            self._send("WATCHDOG=1")

    def stopping(self) -> None:
        """The process is about to end."""
        self._send("STOPPING=1")

    def _send(self, text: str) -> None:
        if not self._address or os.name != "posix":
            return
        address = (
            f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        )  # @: no file has its name
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as line:
            line.settimeout(1.0)
            line.sendto(text.encode(), address)
