"""The server of the pages: what it answers, to whom, and what it lets a browser do."""

import http.client
import json
import re
import socket
import tomllib
from contextlib import ExitStack
from pathlib import Path

import pytest

from firma.errors import BadInput
from firma.page import server
from firma.page.server import POLICY, STATIC, is_loopback, place, serving, static, whole_page

ROOT = Path(__file__).parent.parent.parent
PAGES = ("run.html", "site.html")


class Words:
    """A source that says one thing at once and another when it is asked again."""

    page = "run.html"

    def changes(self, cursor):
        told = cursor.seen.setdefault("told", 0)
        cursor.seen["told"] += 1
        return [{"say": "line one\nline two \u2028 </script>"}] if told == 0 else []

    def data(self, name, query):
        return ("application/json", json.dumps(query).encode()) if name == "details" else None


def ask(port, path="/", method="GET", **headers):
    with_host = {"Host": f"127.0.0.1:{port}"} | {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request(method, path, headers=with_host)
        answer = connection.getresponse()
        return answer, b"" if path.startswith("/events") else answer.read()
    finally:
        connection.close()


def test_every_answer_forbids_what_it_can():
    with serving(Words()) as served:
        for path in ("/", "/charts.js", "/style.css", "/details?run=1", "/nothing", "/events"):
            answer, _ = ask(served.port, path)
            assert answer.status == (404 if path == "/nothing" else 200)
            assert answer.headers["Content-Security-Policy"] == POLICY
            assert answer.headers["X-Content-Type-Options"] == "nosniff"
            assert answer.headers["Referrer-Policy"] == "no-referrer"
            assert answer.headers["Cache-Control"] == "no-store"
            assert "Access-Control-Allow-Origin" not in answer.headers
    assert "unsafe" not in POLICY
    assert "default-src 'none'" in POLICY


def test_pages_have_no_inline_script_or_style_and_load_nothing_from_elsewhere():
    for name in PAGES:
        text = whole_page(name).decode()
        assert re.fullmatch(r"<!doctype html>\n<html lang=\"en\">.*<body>.*</body>\n</html>\n", text, re.DOTALL)
        assert f'<script src="/{name[:-5]}.js" defer>' in text
        assert "{" not in text, "everything is filled in"
        assert not re.search(r"<script(?![^>]*src=)|<style|style=|\son\w+=|javascript:", text)
        used = set(re.findall(r'(?:src|href)="/([^"]+)"', text)) - {"statement.txt"}
        assert used <= set(STATIC)
        assert not re.search(r'(?:src|href)="(?!/|#)', text)
    for name in STATIC:
        text = static(name).decode().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text
        assert "https:" not in text
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )


def test_the_files_of_the_pages_are_part_of_the_package():
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["firma"]
    folder = ROOT / "src" / "firma"
    packed = {each for pattern in wanted for each in folder.glob(pattern)}
    assert {folder / "page" / "static" / name for name in (*PAGES, "shell.html", *STATIC)} <= packed


def test_other_methods_names_and_paths_are_refused():
    with serving(Words()) as served:
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert ask(served.port, "/", method)[0].status == 501
        for path in (
            "/../server.py",
            "/%2e%2e/server.py",
            "/static/run.js",
            "/run.html/",
            "//etc/passwd",
            "/etc/passwd",
        ):
            assert ask(served.port, path)[0].status == 404, path
        answer, body = ask(served.port, "/", "HEAD")
        assert (answer.status, body) == (200, b"")


@pytest.mark.parametrize(
    "name", ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:80", "", "a b", "["]
)
def test_a_name_that_somebody_else_has_given_this_server(name):
    with serving(Words()) as served:
        assert ask(served.port, "/details?run=1", Host=name)[0].status == 421
        for good in ("127.0.0.1", f"localhost:{served.port}", "[::1]:80"):
            assert ask(served.port, "/details?run=1", Host=good)[0].status == 200


def test_one_message_is_one_line_whatever_is_in_it():
    with serving(Words()) as served, socket.create_connection(("127.0.0.1", served.port), timeout=20) as line:
        line.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        found = b""
        while b"data: " not in found or not found.endswith(b"\n\n"):
            found += line.recv(4096)
    (said,) = re.findall(r"^data: (.*)$", found.decode(), re.MULTILINE)
    assert json.loads(said) == {"say": "line one\nline two \u2028 </script>"}


def test_beyond_this_machine_a_token_is_needed(monkeypatch):
    monkeypatch.setattr(server, "is_loopback", lambda host: False)  # as if another machine could reach 127.0.0.1
    with serving(Words()) as first, serving(Words()) as served:
        token = served.url.partition("?token=")[2]
        assert len(token) >= 32
        assert token not in first.url
        for path in (
            "/",
            "/events",
            "/details?run=1",
            "/charts.js",
            "/?token=",
            f"/?token={token[:-1]}",
            "/?token=%C3%A9",
        ):
            assert ask(served.port, path)[0].status == 403, path
        answer, _ = ask(served.port, f"/?token={token}")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
        assert cookie == f"firma-{served.port}={token}; HttpOnly; SameSite=Strict; Path=/"
        for path in ("/", "/events", "/details?run=1"):
            assert ask(served.port, path, Cookie=cookie.partition(";")[0])[0].status == 200
        assert ask(served.port, "/", Cookie=f"firma-{served.port}=wrong")[0].status == 403
        assert ask(first.port, "/", Cookie=cookie.partition(";")[0])[0].status == 403


HOSTS = {
    "127.0.0.1": True, "::1": True, "localhost": True, "0.0.0.0": False, "10.0.0.7": False, "::": False,
    "localhost.example": False,
}  # fmt: skip


@pytest.mark.parametrize(("host", "alone"), HOSTS.items())
def test_which_hosts_are_this_machine(host, alone):
    assert is_loopback(host) is alone


def test_addresses():
    assert place("8050") == ("127.0.0.1", 8050)
    assert place("0.0.0.0:0") == ("0.0.0.0", 0)
    assert place("[::1]:80") == ("::1", 80)
    for wrong in ("", "host", "host:", "70000", "host:-1"):
        with pytest.raises(BadInput, match="must be PORT or HOST:PORT"):
            place(wrong)
    with (
        serving(Words()) as served,
        pytest.raises(BadInput, match="cannot listen there"),
        serving(Words(), str(served.port)),
    ):
        pass


def test_readers_that_hold_on_leave_room_for_others(monkeypatch):
    monkeypatch.setattr(server, "READERS", 3)
    with serving(Words()) as served, ExitStack() as held:
        for _ in range(3):
            line = held.enter_context(socket.create_connection(("127.0.0.1", served.port), timeout=20))
            line.sendall(b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            assert line.recv(100).startswith(b"HTTP/1.1 200")
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(served.port)
