"""The report in a real browser: it renders, loads nothing, switches and filters do what they say, names are text."""

import json
import re
from pathlib import Path

import pytest
from made_up import made_up_result, made_up_study

from firma.cli.report import report
from firma.sweep.cells import Cell
from firma.sweep.store import GRID_FILE, read_cells, save
from tests.browser import CHROMIUM, browsing

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed (make browser)")
ROOT = Path(__file__).parent.parent.parent
HOSTILE = "<img src=x onerror=\"document.title='owned'\"></script><script>document.title='owned'</script>&amp;.csv"
DRAWN = "Number(document.documentElement.dataset.drawn)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with browsing(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    """The repository's own evidence: the largest page there is."""
    path = tmp_path_factory.mktemp("evidence") / "report.html"
    report([ROOT / "evidence"], out=path)
    return path


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The study in two scenarios, with three presets."""
    folder = tmp_path_factory.mktemp("small")
    study = made_up_study(
        folder / "study", ["digits"], ["iid", "dir-0.1"], ["paper", "published", "recommended"], 2, ["fibfl++:gate=no"]
    )
    report([study], out=folder / "report.html")
    return folder / "report.html"


@pytest.fixture(autouse=True)
def fresh(browser):
    browser.visit("about:blank")
    browser.console.clear()
    browser.requests.clear()
    browser.size(1200, 900)
    yield
    browser.scripts(True)


def show(browser, path):
    browser.visit(path.as_uri())
    browser.wait(f"{DRAWN} > 0")


def choose(browser, selector, value):
    """Choose in a list, and wait until it is drawn."""
    before = browser.run(DRAWN)
    browser.select(selector, value)
    browser.wait(f"{DRAWN} > {before}")


def look_at_charts(browser):
    """Charts are drawn when they come into view."""
    browser.run("document.querySelector('.charts').scrollIntoView()")
    browser.wait("document.querySelector('.charts svg path')")


def texts(browser, selector):
    return browser.run(f"[...document.querySelectorAll({json.dumps(selector)})].map(each => each.textContent)")


# Boxes of words that overlap by more than a pixel, in any drawing: [one, other].
COLLISIONS = """[...document.querySelectorAll("svg")].flatMap(figure => {
  const boxes = [...figure.querySelectorAll("text")].map(each => [each.textContent, each.getBoundingClientRect()]);
  return boxes.flatMap(([one, a], k) => boxes.slice(k + 1).filter(([, b]) =>
    Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1 &&
    Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 1
  ).map(([other]) => [one, other]));
})"""


def test_the_repositorys_evidence_is_small_and_loads_nothing(browser, evidence):
    assert evidence.stat().st_size <= 1_500_000
    show(browser, evidence)
    first = browser.run("document.querySelector('main h2').textContent")
    assert first.startswith("The answer")
    assert browser.run("document.querySelector('#wins tbody tr').getBoundingClientRect().top") < 900, "first screen"
    assert browser.run("document.documentElement.scrollHeight") < 15_000
    browser.run("document.querySelectorAll('.charts figure')[20].scrollIntoView()")
    browser.wait("document.querySelectorAll('.charts figure')[20].querySelector('path')")
    browser.run("document.querySelector('details.cell').open = true")
    browser.wait("document.querySelector('details.cell canvas')")
    assert browser.run(COLLISIONS) == []
    assert {each for each in browser.requests if each != evidence.as_uri() and not each.startswith("data:")} == set()
    assert browser.console == []
    bare = re.sub(r"http://www.w3.org/2000/svg", "", evidence.read_text())
    assert "http://" not in bare
    assert "https://" not in bare


def test_overlapping_words_would_be_found(browser, small):
    show(browser, small)
    look_at_charts(browser)
    assert browser.run(COLLISIONS) == []
    browser.run("for (const each of document.querySelectorAll('.charts text')) each.setAttribute('y', 50)")
    assert browser.run(COLLISIONS) != []


def test_switches_of_preset_and_metric_show_what_was_run(browser, small):
    show(browser, small)
    assert texts(browser, "#switch option") == ["recommended", "published", "paper"]
    cells = read_cells(small.parent / "study")

    def mean(preset, method, metric, scenario):
        here = [
            cell.result.metrics[metric]
            for cell in cells
            if (cell.preset, cell.result.method, cell.scenario) == (preset, method, scenario)
        ]
        return sum(here) / len(here)

    for switch, preset in enumerate(("recommended", "published", "paper")):
        for metric, scale, digits in (("mean_accuracy", 100, 1), ("worst_client", 100, 1), ("gini", 1, 3)):
            choose(browser, "#switch", str(switch))
            names = browser.run("JSON.parse(document.getElementById('data').textContent).measures.map(m => m.name)")
            choose(browser, "#measure", str(names.index(metric)))
            heads = texts(browser, "#wins thead tr:first-child th")[1:]
            rows = browser.run("""[...document.querySelectorAll("#wins tbody tr:not(.group)")].map(
              row => [...row.cells].map(cell => cell.textContent.replace(/^[★≈] /, "")))""")
            assert [row[0] for row in rows] == ["iid", "dir-0.1"]
            for row in rows:
                assert dict(zip(heads, row[1:], strict=True)) == {
                    name: f"{scale * mean(preset, name, metric, row[0]):.{digits}f}" for name in heads
                }
            means = {name: mean(preset, name, metric, "iid") for name in heads}
            best = (min if metric == "gini" else max)(means, key=means.get)
            starred = browser.run("document.querySelector('#wins tbody tr:not(.group) td.best').cellIndex")
            assert heads[starred - 1] == best
    assert "fibfl++:gate=no" not in heads
    browser.click("#aside")
    browser.wait("document.querySelector('#wins thead').textContent.includes('fibfl++:gate=no')")
    assert browser.console == []


def test_filters_leave_what_was_asked_for(browser, small):
    show(browser, small)
    choose(browser, "select[data-option=scenario]", "dir-0.1")
    assert texts(browser, "#wins tbody tr:not(.group) th") == ["dir-0.1"]
    assert browser.run("document.querySelectorAll('.charts figure').length") == 1
    assert all("dir-0.1" in text for text in texts(browser, "details.cell summary"))
    before = browser.run(DRAWN)
    browser.run("""(() => { const node = document.querySelector("#variant"); node.value = "FIBFL+";
      node.dispatchEvent(new Event("input")); })()""")
    browser.wait(f"{DRAWN} > {before}")
    assert texts(browser, "#wins thead tr:first-child th") == ["place", "fibfl+", "fibfl++"]
    assert len(texts(browser, "details.cell")) == 2
    browser.click("#reset")
    browser.wait("document.querySelectorAll('#wins tbody tr:not(.group)').length === 2")
    browser.run("""(() => { const node = document.querySelector("#search"); node.value = "iid fedavg";
      node.dispatchEvent(new Event("input")); })()""")
    browser.wait("document.querySelectorAll('details.cell').length === 1")
    browser.click("details.cell summary")
    browser.wait("document.querySelector('details.cell pre').textContent.startsWith('firma run --dataset digits')")
    browser.select("details.cell select", "1")
    assert "--method fedavg --preset recommended --seed 1" in browser.text("details.cell pre")
    assert browser.console == []


def test_curves_and_tables_answer_pointer_keyboard_and_header(browser, small):
    show(browser, small)
    look_at_charts(browser)
    browser.hover(".charts svg", 0.5, 0.5)
    tip = browser.wait("(t => t && !t.hidden && t.textContent)(document.querySelector('.charts .tip'))")
    assert "fibfl++" in tip
    browser.run("document.querySelector('.charts svg').focus()")
    browser.press("Home")
    browser.wait("document.querySelector('.charts [aria-live]').textContent.startsWith('round 1')")
    lines = "document.querySelectorAll('.charts figure')[0].querySelectorAll('path[fill=none]').length"
    assert browser.run(lines) == 7
    browser.click(".legend button")
    browser.wait(f"{lines} === 6")
    column = "[...document.querySelectorAll('.dataset tbody tr')].map(row => Number(row.cells[1].dataset.value))"
    browser.run("document.querySelectorAll('.dataset th button')[1].click()")
    down = browser.run(column)
    assert down == sorted(down, reverse=True)
    browser.run("document.querySelectorAll('.dataset th button')[1].click()")
    assert browser.run(column) == sorted(down)
    assert browser.console == []


def test_claims_are_filtered_by_verdict_and_follow_the_preset(browser, small):
    show(browser, small)
    shown = "[...document.querySelectorAll('details.statement:not([hidden]) .verdict:not([hidden])')]"
    every = browser.run(f"{shown}.map(each => each.textContent)")
    assert all(text.startswith(("Holds: ", "Fails: ", "Undecided: ", "Does not apply: ")) for text in every)
    assert any("(the paper says" in text for text in every)
    browser.run("""(() => { const node = document.querySelector("#verdict"); node.value = "holds";
      node.dispatchEvent(new Event("input")); })()""")
    some = browser.run(f"{shown}.map(each => each.textContent)")
    assert 0 < len(some) < len(every)
    assert all(text.startswith("Holds: ") for text in some)
    choose(browser, "#switch", "1")
    assert browser.run(f"{shown}.every(each => ['published', 'computed'].includes(each.dataset.source))")
    open_tables = "[...document.querySelectorAll('details.table:not([hidden])')].map(each => each.dataset.source || '')"
    assert set(browser.run(open_tables)) == {"", "published"}


@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_a_phone(browser, evidence, dark):
    browser.size(360, 740, dark)
    show(browser, evidence)
    browser.run("document.querySelector('details.cell').open = true")
    look_at_charts(browser)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    assert browser.run(COLLISIONS) == []
    ground = browser.run("getComputedStyle(document.body).backgroundColor")
    assert (ground == "rgb(255, 255, 255)") is not dark


CONTRASTS = """(() => {
  const pen = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = text => { pen.fillStyle = text; pen.fillRect(0, 0, 1, 1);
    return [...pen.getImageData(0, 0, 1, 1).data]; };
  const light = text => { const parts = rgb(text).slice(0, 3).map(each => each / 255)
    .map(each => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]; };
  return Object.fromEntries([0, 1, 2, 3, 4, 5].map(k => { const node = document.createElement("td");
    node.className = `n${k}`; document.querySelector("#wins tbody tr").append(node);
    const style = getComputedStyle(node), pair = [light(style.color), light(style.backgroundColor)].sort();
    node.remove(); return [k, (pair[1] + 0.05) / (pair[0] + 0.05)]; }));
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_numbers_stand_out_from_the_colours_below_them(browser, small, dark):
    browser.size(1200, 900, dark)
    show(browser, small)
    found = browser.run(CONTRASTS)
    assert len(found) == 6
    assert min(found.values()) >= 4.5


def test_print_has_tables_and_charts_but_no_bars(browser, small):
    show(browser, small)
    browser.size(800, 1100, media="print")
    browser.wait("[...document.querySelectorAll('.charts figure')].every(each => each.querySelector('path'))")
    assert browser.run("document.documentElement.scrollWidth") <= 800
    for hidden in ("nav", "#controls .bar", "#runs", "#search"):
        assert browser.run(f"document.querySelector({json.dumps(hidden)}).getClientRects().length") == 0, hidden
    for there in ("#wins td", "#answer li", ".dataset td", ".statement"):
        assert browser.run(f"document.querySelector({json.dumps(there)}).getClientRects().length") > 0, there
    assert browser.run("getComputedStyle(document.querySelector('.sticky')).position") == "static"


def test_the_overview_needs_no_script(browser, small):
    browser.scripts(False)
    browser.visit(small.as_uri())
    browser.scripts(True)  # to ask the page, whose own script did not run
    assert browser.run(f"{DRAWN} > 0") is False
    assert len(texts(browser, "#wins tbody tr:not(.group)")) == 2
    assert any(text.startswith("★") for text in texts(browser, "#wins td"))
    assert "highest mean accuracy" in " ".join(texts(browser, "#answer li"))
    assert "runs96" in browser.text("#overview dl")
    assert browser.run("document.querySelector('#controls').getClientRects().length") == 0


def test_names_of_others_are_text(browser, tmp_path):
    for method in ("local", "fedavg"):
        for seed in range(2):
            cell = Cell(HOSTILE, "iid", method, "recommended", seed, 4, 3, called=f"{HOSTILE} {method} {seed}")
            save(tmp_path, cell, made_up_result(cell, 0.7), {})
    (tmp_path / GRID_FILE).write_text("")
    (tmp_path / "failures.json").write_text(
        json.dumps([{"key": "k", "name": HOSTILE, "error": HOSTILE, "details": HOSTILE}])
    )
    report([tmp_path], out=tmp_path / "report.html")
    show(browser, tmp_path / "report.html")
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    browser.wait("document.querySelector('details.cell canvas')")
    browser.hover("details.cell svg", 0.5)
    assert browser.run("document.images.length") == 0
    assert browser.run("document.scripts.length") == 2
    assert browser.run("document.title") == "FIRMA report"
    assert "onerror" in browser.text("#wins")
    assert "onerror" in browser.text("#how")
    assert "onerror" in browser.text("details.cell pre")
    assert browser.console == []


def test_a_script_in_the_page_would_not_run(browser, small):
    """The policy holds even if a mistake let markup through."""
    text = small.read_text().replace("<main>", "<main><script>document.title = 'owned'</script>", 1)
    (small.parent / "broken.html").write_text(text)
    show(browser, small.parent / "broken.html")
    assert browser.run("document.title") != "owned"
    assert any("Content Security Policy" in line for line in browser.console)
    browser.run("try { document.body.innerHTML = '<b>markup</b>'; } catch {}")
    assert browser.run("document.querySelector('main') !== null"), "text cannot become markup"


def test_a_report_of_one_run_makes_sense(browser, tmp_path):
    cell = Cell("mine.csv", "dir-0.3", "fedavg", "recommended", 0, 4, 3, called="one")
    save(tmp_path, cell, made_up_result(cell, 0.7), {})
    (tmp_path / GRID_FILE).write_text("")
    report([tmp_path], out=tmp_path / "report.html")
    show(browser, tmp_path / "report.html")
    accuracy = 100 * read_cells(tmp_path)[0].result.metrics["mean_accuracy"]
    assert texts(browser, "#answer li")[0] == (
        f"fedavg on mine.csv, dir-0.3: mean accuracy {accuracy:.1f}\u00a0% (one seed) after 3 rounds."
    )
    whole = browser.run("document.body.innerText")
    assert "Who wins" not in whole
    assert "★" not in whole
    assert "A against B" not in whole
    look_at_charts(browser)
    assert browser.console == []


def test_the_screenshot_of_the_documentation_exists():
    picture = ROOT / "docs" / "figures" / "report.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000
