"""The pages in a real browser: they render, follow a run as it goes on, survive a restart, and believe no text."""

import json
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from firma.live_log import LIVE_FILE, LivePlace, LiveRun, begin, held, round_facts, session
from firma.page.run_state import RunState
from firma.page.server import serving
from tests.browser import CHROMIUM, browsing
from tests.processes import running

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make browser)")
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>&amp;\u202e"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(autouse=True)
def fresh(request):
    if "browser" in request.fixturenames:
        found = request.getfixturevalue("browser")
        found.visit("about:blank")  # the page of the test before, whose server is gone, has its last say
        found.console.clear()
        found.requests.clear()
        found.size(1200, 900)


def made_up(folder, method, clients, rounds, seed=0, done=None, **facts):
    """A run with made-up scores; gives it, so that rounds can be added."""
    run, rng = LiveRun(LivePlace(folder)), np.random.default_rng(seed)
    order = rng.permutation(clients).tolist()
    run.write("run", {
        "name": "", "key": "", "method": method, "seed": seed, "rounds": rounds, "clients": clients, "main": "accuracy",
        "title": "accuracy", "settings": {"dataset": "made-up", "scenario": "iid"}, "command": f"firma run {method}",
        "topology": "ring", "samples": [50] * clients, "orders": [[1, order]],
        "holds": held(rng.dirichlet([0.3] * 10, clients).tolist(), [50] * clients), **facts,
    })  # fmt: skip
    for number in range(rounds if done is None else done):
        add_round(run, number, clients, rng, order)
    return run


def add_round(run, number, clients, rng, order):
    scores = np.clip(1 - np.exp(-(number + 1) / 10) + rng.normal(0, 0.02, clients), 0, 1).tolist()
    seats = range(clients if clients < 50 or number % 100 == 99 else 0)  # of large runs not in every round
    around = [[order[k], order[(k + step) % clients], 1 / 3] for k in seats for step in (-1, 0, 1)]
    run.write("round", round_facts(number + 1, scores, 1_000_000, 2 * clients) | {
        "took": 0.5, "seconds": {"training": 0.4, "mixing": 0.05, "testing": 0.05}, "mixing": "ring", "passes": 1,
        "links": around, "gate": {"threshold": 0.35, "below": order[:1], "claimed": [[k, 0.9] for k in range(clients)]},
    })  # fmt: skip


def test_a_real_run_is_followed_as_it_goes_on(browser, tmp_path):
    words = [
        "run",
        "--dataset",
        "digits",
        "--method",
        "local",
        "--method",
        "fibfl++",
        "--clients",
        "5",
        "--rounds",
        "60",
    ]
    words += ["--set", "extractor_epochs=1", "--set", "epochs=1", "--live", "--page", "0", "--out", str(tmp_path)]
    with running([sys.executable, "-m", "firma", *words], stderr=-1) as process:
        url = next(line for line in process.stderr if line.startswith("Live page: ")).split()[-1]
        browser.visit(url)
        browser.wait("document.querySelector('#chart path') && document.querySelector('#runs tbody tr')", 120)
        state = "document.querySelector('#state').textContent"
        first = browser.wait(f"{state}.startsWith('Running') && {state}", 120)
        later = browser.wait(f"{state} !== {json.dumps(first)} && {state}", 60)
        assert later.startswith(("Running: ", "Starting: ", "Finished"))
        browser.wait(f"{state} === 'Finished: 2 runs.'", 240)
        labels = browser.run("[...document.querySelectorAll('#legend .name')].map(each => each.textContent)")
        assert labels == ["local", "fibfl++"]
        assert browser.run("document.querySelectorAll('#runs tbody tr').length") == 2
        assert browser.console == []
        origin = url.rstrip("/")
        assert {each for each in browser.requests if not each.startswith(origin)} == set()
        assert process.wait(60) == 0
    assert (tmp_path / LIVE_FILE).exists()


def test_a_person_can_point_choose_and_compare(browser, tmp_path):
    begin(tmp_path, "made-up", "firma run", 4)
    for method in ("one", "two"):
        for seed in (0, 1):
            made_up(tmp_path, method, 6, 8, seed).close()
    with serving(RunState(tmp_path)) as served:
        browser.visit(served.url)
        browser.wait("document.querySelectorAll('#runs tbody tr').length === 4")
        paths = "document.querySelectorAll('#chart svg > path').length"
        browser.wait(f"{paths} === 4")
        browser.hover("#chart svg", 0.5, 0.5)
        tip = browser.wait(
            "!document.querySelector('#chart .tip').hidden && document.querySelector('#chart .tip').textContent"
        )
        assert tip.startswith(("round 4", "round 5"))
        assert tip.count("seed") == 4
        browser.click("#legend button")
        browser.wait(f"{paths} === 2")
        assert browser.run("document.querySelector('#legend button').getAttribute('aria-pressed')") == "false"
        browser.select("#seeds", "mean")
        browser.wait("document.querySelector('#chart svg').getAttribute('aria-label').includes('two (2 seeds)')")
        browser.run("document.querySelector('#chart svg').focus()")
        browser.press("Home")
        browser.press("ArrowRight")
        browser.wait("document.querySelector('#chart [aria-live]').textContent.startsWith('round 2')")
        browser.press("Enter")
        browser.wait("document.querySelector('#round-said').textContent === '2 of 8'")
        browser.run("document.querySelector('#ring canvas').focus()")
        browser.press("ArrowRight")
        browser.wait("/^Client \\d$/.test(document.querySelector('#client-title').textContent)")
        assert "class" in browser.text("#client")
        browser.click("#latest")
        browser.wait("document.querySelectorAll('#weights tbody tr').length === 3")
        assert "below" in browser.text("#gate")
        browser.hover("#heat canvas", 0.5, 0.4)
        tip = browser.wait(
            "!document.querySelector('#heat .tip').hidden && document.querySelector('#heat .tip').textContent"
        )
        assert "client" in tip
        assert browser.console == []


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (360, False), (360, True)])
def test_it_fits_a_phone_and_the_dark(browser, tmp_path, width, dark):
    begin(tmp_path, "made-up", "firma run " + "x" * 300, 1)
    made_up(tmp_path, "a-method-with-a-very-long-name:topology=all-reduce,shares=extractor", 5, 4).close()
    browser.size(width, 800, dark)
    with serving(RunState(tmp_path)) as served:
        browser.visit(served.url)
        browser.wait("document.querySelector('#weights tbody tr') || document.querySelector('#heat canvas')")
        assert browser.run("document.documentElement.scrollWidth") <= width
        ground = browser.run("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(255, 255, 255)") is not dark
        browser.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 20_000
        assert browser.console == []


def contrast(one, two):
    """WCAG's ratio of two colours #rrggbb."""

    def light(text):
        parts = [int(text[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(two)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_words_and_lines_stand_out(browser, tmp_path, dark):
    begin(tmp_path, "made-up", "firma run", 1)
    browser.size(800, 800, dark)
    with serving(RunState(tmp_path)) as served:
        browser.visit(served.url)
        names = ["page", "panel", "ink", "quiet", "accent", "good", "bad", "warn", *(f"c{k}" for k in range(10))]
        script = "getComputedStyle(document.documentElement).getPropertyValue"
        found = {
            name: browser.run(f"{script.replace('.getPropertyValue', '')}.getPropertyValue('--{name}').trim()")
            for name in names
        }
        for ground in ("page", "panel"):
            for name in names[2:8]:
                assert contrast(found[name], found[ground]) >= 4.5, (name, ground)
            for name in names[8:]:
                assert contrast(found[name], found[ground]) >= 3, (name, ground)


def test_a_thousand_clients_and_three_hundred_rounds(browser, tmp_path):
    begin(tmp_path, "large", "firma run", 2)
    for seed in (0, 1):
        made_up(tmp_path, "large", 1000, 300, seed).close()
    with serving(RunState(tmp_path)) as served:
        began = time.monotonic()
        browser.visit(served.url)
        browser.wait("document.querySelector('#heat canvas') !== null", 120)
        browser.wait("document.querySelector('#round-said').textContent.startsWith('300')")
        assert time.monotonic() - began < 60, "two or three seconds on a quiet machine"
        script = """(() => { const heat = document.querySelector("#heat canvas");
          const seen = new Set(), pen = heat.getContext("2d");
          const data = pen.getImageData(60, 10, heat.width - 80, heat.height - 50).data;
          for (let at = 0; at < data.length; at += 4 * 97) seen.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
          return seen.size; })()"""
        assert browser.run(script) > 50, "the heat-map shows many different scores"
        began = browser.run("performance.now()")
        drawn = browser.run("Number(document.documentElement.dataset.drawn)")
        browser.select("#metric", "both")
        browser.wait(f"Number(document.documentElement.dataset.drawn) > {drawn}")
        assert browser.run("performance.now()") - began < 10_000
        assert browser.console == []


def test_it_survives_a_restart_of_the_server(browser, tmp_path):
    begin(tmp_path, "made-up", "firma run", 1)
    rng, run = np.random.default_rng(0), made_up(tmp_path, "one", 4, 20, done=3)
    said = "document.querySelector('#round-said').textContent"
    with serving(RunState(tmp_path)) as served:
        browser.visit(served.url)
        browser.wait(f"{said}.startsWith('3 of 20')")
    browser.wait("!document.querySelector('#lost').hidden")
    assert browser.run(said).startswith("3 of 20"), "what was known stays"
    add_round(run, 3, 4, rng, [0, 1, 2, 3])
    with serving(RunState(tmp_path), str(served.port)):
        browser.wait(f"{said}.startsWith('4 of 20') && document.querySelector('#lost').hidden")
        add_round(run, 4, 4, rng, [0, 1, 2, 3])
        browser.wait(f"{said}.startsWith('5 of 20')")
    run.close()
    assert [line for line in browser.console if "net::ERR" not in line] == []


def test_text_of_others_is_text(browser, tmp_path):
    with session(tmp_path, HOSTILE, HOSTILE, 1):
        run = made_up(
            tmp_path, HOSTILE, 3, 2, labels=[HOSTILE] * 10, client_names=[HOSTILE] * 3, dishonest=[HOSTILE],
            settings={"dataset": HOSTILE, "scenario": HOSTILE, HOSTILE: HOSTILE}, topology=HOSTILE, title=HOSTILE,
        )  # fmt: skip
        run.write("end", {"status": "failed", "error": HOSTILE})
        run.close()
        with serving(RunState(tmp_path)) as served:
            browser.visit(served.url)
            browser.wait("document.querySelector('#runs tbody tr') && document.querySelector('#settings dt')")
            browser.run("document.querySelector('#ring canvas').focus()")
            browser.press("ArrowRight")
            browser.wait("document.querySelector('#client-title').textContent.includes('onerror')")
            browser.hover("#chart svg", 0.9)
            browser.hover("#ring canvas", 0.5, 0.06)
            browser.hover("#heat canvas", 0.5, 0.3)
            assert browser.run("document.images.length") == 0
            assert browser.run("document.scripts.length") == 3
            assert browser.run("document.title") != "owned"
            assert "onerror" in browser.text("#title")
            assert browser.console == []


def test_a_script_in_the_page_would_not_run(browser, tmp_path):
    """The policy holds even if a mistake let markup through."""
    begin(tmp_path, "made-up", "firma run", 1)
    with serving(RunState(tmp_path)) as served:
        browser.visit(served.url)
        browser.run("""(() => { const node = document.createElement("script"); node.id = "bad";
          try { node.text = "document.title = 'owned'"; document.body.append(node); } catch {} })()""")
        browser.run("try { document.body.innerHTML = '<b>markup</b>'; } catch {}")
        assert browser.run("document.title") != "owned"
        assert browser.run("document.querySelector('main') !== null"), "text cannot become markup"
        assert browser.run("fetch('https://example.org/').then(() => false, () => true)")
        assert any("Content Security Policy" in line for line in browser.console)


def test_the_screenshot_of_the_documentation_exists():
    picture = Path(__file__).parent.parent.parent / "docs" / "figures" / "live.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000
