"""The page in a real browser: it renders, nothing is logged, nothing is loaded, sorting sorts."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from made_up import made_up_study

from firma.cli.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make browser)")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--enable-logging=stderr", "--v=0", "--window-size=1400,2400",
)  # fmt: skip
# Runs in the page after its own script: a person's clicks, and what the table then shows.
CLICKS = """<script>
  const seen = {};
  const table = document.querySelector("table[id^=mean_accuracy-digits]");
  const column = () => [...table.tBodies[0].rows].map(row => row.cells[1].dataset.value ?? "none").join(" ");
  const button = table.querySelectorAll("th button")[1];
  button.click(); seen.up = column(); seen.sort = button.parentElement.getAttribute("aria-sort");
  button.click(); seen.down = column();
  table.querySelector("th button").click();
  seen.names = [...table.tBodies[0].rows].map(row => row.cells[0].textContent).join(" ");
  seen.pictures = [...document.images].every(image => image.complete && image.naturalWidth > 0);
  seen.wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  document.documentElement.setAttribute("data-seen", JSON.stringify(seen).replaceAll('"', "'"));
</script>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    report([made_up_study(folder / "study", ["digits"], ["iid", "dir-0.1"], seeds=2)], out=folder / "report.html")
    text = (folder / "report.html").read_text()

    def visit(name, text, *words):
        (folder / name).write_text(text)
        profile = f"--user-data-dir={folder / ('profile-' + name)}"
        command = [CHROMIUM, *FLAGS, profile, *words, (folder / name).as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)

    return folder, text, visit


def console(process):
    return [line for line in process.stderr.splitlines() if "CONSOLE" in line]


def test_it_renders_without_a_word_on_the_console(browser):
    folder, text, visit = browser
    shot = folder / "page.png"
    process = visit("page.html", text, f"--screenshot={shot}")
    assert console(process) == []
    assert shot.read_bytes().startswith(b"\x89PNG")
    assert shot.stat().st_size > 50_000


def test_a_mistake_would_be_seen(browser):
    _, text, visit = browser
    process = visit("broken.html", text.replace("</body>", "<script>nowhere()</script></body>"), "--dump-dom")
    assert any("nowhere" in line for line in console(process))


def test_headers_sort_and_pictures_show(browser):
    _, text, visit = browser
    process = visit("clicks.html", text.replace("</body>", CLICKS + "</body>"), "--dump-dom")
    assert console(process) == []
    seen = dict(re.findall(r"'(\w+)':'?([^',}]*)", re.search(r'data-seen="([^"]*)"', process.stdout)[1]))
    up, down = ([float(value) for value in seen[way].split()] for way in ("up", "down"))
    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len(up) == 7
    assert seen["sort"] == "ascending"
    assert seen["names"].split() == sorted(seen["names"].split())
    assert seen["pictures"] == "true"
    assert int(seen["wide"]) <= 0


def test_nothing_is_loaded_from_anywhere(browser):
    _, text, _ = browser
    bare = re.sub(r"base64,[A-Za-z0-9+/=]+", "", text)
    assert "http://" not in bare
    assert "https://" not in bare
    assert not re.search(r"(src|href)=\"(?!data:|#)", bare)
    assert Path(__file__).name not in bare
