"""A read-only server of one page: a few static files, a stream of server-sent events, and data on demand.

It answers this machine only, unless another address is asked for; then whoever reads needs the token, which is made
anew for every start. What protects the page:

- GET and HEAD only; nothing can be changed, and no path of the file system is ever taken from a request.
- The Host header must be an IP address, localhost, or the name that was asked for: a page of somebody else whose name
  is made to point here (DNS rebinding) is refused.
- The content-security policy allows scripts, styles and data of this server alone, no inline script, and (Trusted
  Types) no way from text to HTML.
- The token is compared in constant time and moved from the address to a cookie that scripts cannot read.
"""

import hmac
import ipaddress
import json
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

from firma.errors import BadInput
from firma.page.assets import static
from firma.page.bounded_server import READERS, BoundedServer, answering

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_TYPES = {
    "html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}  # fmt: skip
STATIC = ("style.css", "charts.js", "common.js", "run.js", "site.js", "icon.svg")
_SLOW = 20.0  # seconds that a reader may take to ask, or to take what it is sent
_EVERY = 0.4  # seconds between two looks at what is shown
_QUIET = 10.0  # seconds after which a silent stream says that it is alive


class Cursor:
    """How far one reader is; a source keeps there what it likes."""

    def __init__(self) -> None:
        self.seen: dict[str, Any] = {}


class Source(Protocol):
    """What a page shows."""

    page: str  # the file of `static/` with the page's content

    def changes(self, cursor: Cursor) -> list[Mapping[str, Any]]:
        """What is new for this reader, as plain data; for a new reader, everything."""

    def data(self, name: str, query: Mapping[str, str]) -> tuple[str, bytes] | None:
        """Type and content of other data that the page asks for by name; None if there are none."""


@dataclass(frozen=True)
class Served:
    """Where a page is."""

    url: str  # to be opened; with the token, if there is one
    port: int


def place(address: str) -> tuple[str, int]:
    """Host and port of [HOST:]PORT; the host is this machine alone if it is not stated."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise BadInput(f"page = {address!r}: must be PORT or HOST:PORT, such as 8050 (0: any free port)")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@contextmanager
def serving(source: Source, address: str = "127.0.0.1:0") -> Iterator[Served]:
    """Serve a page until the block ends. Beyond this machine, its address holds a new token."""
    host, port = place(address)
    token = "" if is_loopback(host) else secrets.token_urlsafe(24)
    stop = threading.Event()
    try:
        server = BoundedServer((host, port), _handler(source, host, token, stop), READERS)
    except OSError as error:
        reason = error.strerror or error
        raise BadInput(f"page = {address!r}: cannot listen there ({reason}); choose another port, or 0") from None
    shown = socket.gethostname() if host in ("0.0.0.0", "::") else host
    shown = f"[{shown}]" if ":" in shown else shown
    with answering(server) as port:
        try:
            yield Served(f"http://{shown}:{port}/" + (f"?token={token}" if token else ""), port)
        finally:
            stop.set()


def _handler(source: Source, host: str, token: str, stop: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Answer(BaseHTTPRequestHandler):
        timeout = _SLOW
        protocol_version = "HTTP/1.1"
        server_version, sys_version = "firma", ""

        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            self.close_connection = True
            asked = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(asked.query).items()}
            if not _known_host(self.headers.get("Host", ""), host):
                self._send(421, "text/plain", b"this server is not known by that name; use its IP address\n")
            elif token and not self._may_read(query):
                self._send(403, "text/plain", b"open the address with the token that was printed at the start\n")
            elif token and asked.path == "/" and "token" in query:
                cookie = f"{self._cookie()}={token}; HttpOnly; SameSite=Strict; Path=/"
                self._send(303, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})
            else:
                self._answer(asked.path.removeprefix("/"), query)

        def _cookie(self) -> str:
            """Browsers send cookies to every port of a host, so the name has the port."""
            return f"firma-{self.connection.getsockname()[1]}"

        def _may_read(self, query: Mapping[str, str]) -> bool:
            given = query.get("token", "")
            try:
                cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self._cookie())
            except CookieError:
                cookie = None
            given = given or (cookie.value if cookie is not None else "")
            return hmac.compare_digest(given.encode(), token.encode())

        def _answer(self, name: str, query: Mapping[str, str]) -> None:
            if name == "events":
                self._stream()
            elif name == "":
                self._send(200, _TYPES["html"], whole_page(source.page))
            elif name in STATIC:
                self._send(200, _TYPES[name.rpartition(".")[2]], static(name))
            elif (found := source.data(name, query)) is not None:
                self._send(200, *found)
            else:
                self._send(404, "text/plain", b"there is nothing of that name\n")

        def _send(self, status: int, kind: str, body: bytes, more: Mapping[str, str] | None = None) -> None:
            self.send_response(status)
            for header, value in {**HEADERS, "Content-Type": kind, **(more or {})}.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def _stream(self) -> None:
            """Everything, then what changes; ends with the server, or when the reader is gone."""
            self.send_response(200)
            for header, value in {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}.items():
                self.send_header(header, value)
            self.send_header("Connection", "close")
            self.end_headers()
            if self.command == "HEAD":
                return
            self.wfile.write(b"retry: 1000\n\n")
            cursor, spoke = Cursor(), time.monotonic()
            while not stop.is_set():
                for message in source.changes(cursor):
                    # Line ends inside strings are escaped by JSON, so one message is one line.
                    self.wfile.write(f"data: {json.dumps(message, allow_nan=False)}\n\n".encode())
                    spoke = time.monotonic()
                if time.monotonic() - spoke > _QUIET:
                    self.wfile.write(b": still here\n\n")
                    spoke = time.monotonic()
                stop.wait(_EVERY)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002, the library's name
            pass

    return Answer


def whole_page(name: str) -> bytes:
    """A page: what all pages share, around what `name` holds; its script has its name."""
    shell, script = static("shell.html"), name.replace(".html", ".js")
    return shell.replace(b"{script}", script.encode()).replace(b"{content}", static(name).rstrip())


def _known_host(header: str, host: str) -> bool:
    """Whether a Host header can only be that of somebody who means this server."""
    try:
        name = urlsplit(f"//{header}").hostname or ""
    except ValueError:  # such as an open bracket
        return False
    try:
        ipaddress.ip_address(name)
        return True
    except ValueError:
        return name in {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}
