"""A small proxy on loopback before one member's port: what reaches that member goes through here, and can be stopped.

What the member sends on connections of its own does not: a member behind a proxy that is shut can call others, and
nobody can call it, as behind NAT without a forwarded port.
"""

import socket
import threading
import time

_PIECE = 65536


class Proxy:
    """Passes on bytes between `port` and `target` on loopback, until it is told otherwise."""

    def __init__(self, port, target):
        self.target, self.port = target, port
        self._listening = socket.create_server(("127.0.0.1", port))
        self._pairs = []
        self._stop, self._shut, self._rate = threading.Event(), False, None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def shut(self):
        """Connections are cut, and no new ones taken: the port is closed."""
        with self._lock:
            self._shut = True
            self._listening.close()
            for pair in self._pairs:
                for each in pair:
                    each.close()
            self._pairs.clear()

    def open(self):
        with self._lock:
            self._shut, self._rate = False, None
            self._listening = socket.create_server(("127.0.0.1", self.port))

    def trickle(self, rate=1):
        """From now on so many bytes per second on each connection towards the member."""
        self._rate = rate

    def _run(self):
        while not self._stop.is_set():
            with self._lock:
                if not self._shut:
                    self._accept()
                moved = [self._pass(pair) for pair in list(self._pairs)]
            if self._rate is not None:
                time.sleep(1.0)
            elif not any(moved):
                time.sleep(0.002)

    def _accept(self):
        self._listening.settimeout(0)
        try:
            caller, _ = self._listening.accept()
        except OSError:
            return
        try:
            self._pairs.append((caller, socket.create_connection(("127.0.0.1", self.target), timeout=1)))
        except OSError:
            caller.close()

    def _pass(self, pair):
        """Once in both directions; returns whether anything moved."""
        moved = False
        for source, sink, rate in ((pair[0], pair[1], self._rate), (pair[1], pair[0], None)):
            source.settimeout(0)
            try:
                piece = source.recv(rate or _PIECE)
                if not piece:
                    raise OSError("closed")
                sink.settimeout(5)
                sink.sendall(piece)
                moved = True
            except BlockingIOError:
                continue
            except OSError:
                for each in pair:
                    each.close()
                self._pairs.remove(pair)
                return True
        return moved

    def close(self):
        self._stop.set()
        self._thread.join()
        self._listening.close()
        for pair in self._pairs:
            for each in pair:
                each.close()
