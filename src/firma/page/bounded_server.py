"""An HTTP server in threads that its readers cannot wear out; the pages and a member's metrics are served by it."""

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

READERS = 32  # at a time; more are turned away


class BoundedServer(ThreadingHTTPServer):
    """Listens from the start on; at most `readers` are answered at a time."""

    request_queue_size = 128  # the library's 5 makes readers wait for a second when a few come together
    block_on_close = False  # a reader of a stream must not delay the end

    def __init__(self, where: tuple[str, int], handler: type[BaseHTTPRequestHandler], readers: int = READERS) -> None:
        self.address_family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
        self._places = threading.BoundedSemaphore(readers)
        super().__init__(where, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Readers that hold connections open must not take the files that rounds are saved in."""
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """One reader, in a thread of its own."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that hangs up is its own affair; the library would print a traceback for each."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def answering(server: BoundedServer) -> Iterator[int]:
    """Answer until the block ends; gives the port."""
    thread = threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
