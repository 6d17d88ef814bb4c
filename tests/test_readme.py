"""What the README shows, and what was found, is what the package says and does."""

import json
import re
import shlex
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev

import pytest

import firma
from firma.cli.methods import markdown_list, markdown_table
from firma.paper.claims import CLAIMS
from firma.paper.grid import CASES
from firma.paper.judging import higher
from firma.paper.published import published, shipped

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FINDINGS = (ROOT / "docs" / "findings.md").read_text()
RIVALS = ("fedavg", "fedrep", "local", "rdfl", "fibfl++")
SCENARIOS = [scenario for dataset, scenario in CASES if dataset == "digits"]
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


def test_the_table_is_rendered_from_the_methods():
    page = (ROOT / "docs" / "methods.md").read_text()
    for part in (markdown_table(), markdown_list()):
        assert part in page, "print it with: firma methods --markdown"


def test_it_is_short():
    assert len(README.splitlines()) <= 150
    assert max(len(line) for line in README.splitlines() if not line.startswith("|")) <= 120


def test_make_run_prints_what_is_shown(command, monkeypatch, tmp_path):
    """The command of the Makefile: the same words and traffic, and accuracies as near as another machine's are."""
    (line,) = re.findall(r"^\t\$\(BIN\)/firma (run .*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    shown = README.partition("$ make run\n")[2].partition("```")[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    code, out, _ = command(*shlex.split(line))
    assert code == 0
    number = re.compile(r"[0-9]\.[0-9]+")
    assert number.sub("#", out) == number.sub("#", shown)
    for ours, theirs in zip(number.findall(out), number.findall(shown), strict=True):
        assert float(ours) == pytest.approx(float(theirs), abs=0.03)


def test_the_result_is_that_of_the_evidence():
    part = README.partition("## Why a ring")[2].partition("\n## ")[0]
    said = " ".join(part.split())
    table = shipped()["recommended"]
    better = {other: [higher_mean(table, case, other) for case in CASES] for other in ("fedavg", "local")}
    assert f"Of the paper's {len(CASES)} cases" in said
    assert f"more accurate than `fedavg` in {sum(better['fedavg'])}," in said
    assert f"and than training alone in {sum(better['local'])}." in said
    methods = ("local", "fedavg", "fedrep", "fibfl++", "frame")
    rows = re.findall(r"^\| `([\w.-]+)`, [^|]*\|(.*)\|$", part, re.MULTILINE)
    assert [scenario for scenario, _ in rows] == ["dir-0.1", "skew-1", "iid"]
    for scenario, cells in rows:
        found = [100 * table.get(("cifar10", scenario), method).mean for method in methods]
        assert cells.split("|") == [f" {mean:.1f} " for mean in found], scenario
        if scenario == "dir-0.1":
            assert f"by {found[3] - found[1]:.1f} points on CIFAR-10 at `dir-0.1`" in said
    sent = [table.get(("cifar10", "iid"), method, "bytes_per_round").mean for method in ("frame", "fedavg")]
    assert sent[0] <= sent[1]
    sent = [table.get(("cifar10", "iid"), method, "bytes_per_round").mean for method in ("fibfl++", "fedavg")]
    assert f"{sent[0] / sent[1]:.1f} times the traffic of `fedavg` with ten clients" in said


def test_frame_has_lost_nowhere_yet():
    """In every case, against whatever was run there; digits are paired by seed."""
    table = shipped()["recommended"]
    cases = [case for case in CASES if table.get(case, "frame")]
    assert len(cases) == 28
    assert all(table.get(case, "frame").seeds == (10 if case[0] == "digits" else 1) for case in cases)
    lost = {(case, other) for case in cases for other in RIVALS if higher("frame", other)(table, case) is False}
    assert not lost
    run = sum(table.get(case, "fedrep") is not None for case in CASES)
    assert f"clearly below no method that was run there (`fedrep` in {run})" in " ".join(README.split())
    said = " ".join(FINDINGS.split())
    means = {
        method: 100 * fmean(table.get(("digits", each), method).mean for each in SCENARIOS)
        for method in (*RIVALS, "frame")
    }
    assert max(means, key=means.get) == "frame"
    for method, words in (("frame", "it has {:.1f} % in the mean"), ("fibfl++", "`fibfl++` ({:.1f} %)"),
                          ("rdfl", "`rdfl` ({:.1f} %)"), ("fedrep", "`fedrep` ({:.1f} %)"),
                          ("fedavg", "`fedavg` ({:.1f} %)"), ("local", "training alone ({:.1f} %)")):  # fmt: skip
        assert words.format(means[method]) in said
    behind = sorted((mean, interval, rival, scenario) for (rival, scenario), (mean, interval) in paired().items())
    for mean, interval, _, scenario in behind[:3]:
        assert f"{mean:.2f} ± {interval:.2f}" in said, scenario
    assert all(mean + interval > 0 for mean, interval, *_ in behind)
    at = {case: 100 * table.get(case, "frame").mean for case in cases}
    above = {
        case: at[case] - max(100 * found.mean for name, found in table.methods(case).items() if name in RIVALS)
        for case in cases
        if case[0] != "digits"
    }
    clear = [case for case, points in above.items() if points > 1]
    told = f"at most {-min(above.values()):.1f} points below the best of what was run, and above it in"
    assert f"{told} {sum(points > 0 for points in above.values())}, by more than a point in six" in said
    assert (len(clear), {dataset for dataset, _ in clear}) == (6, {"cifar10"})
    for scenario in ("dir-0.1", "skew-1", "iid"):
        assert f"at `{scenario}` ({at['cifar10', scenario]:.1f} %; " in said
    mnist, fashion = ([at[name, each] for each in ("iid", "dir-0.1", "skew-1")] for name in ("mnist", "fashion-mnist"))
    assert "{:.1f}, {:.1f} and {:.1f} % at `iid`, `dir-0.1` and `skew-1`".format(*mnist) in said
    assert "on Fashion-MNIST {:.1f}, {:.1f} and {:.1f} %, where the best others".format(*fashion) in said


def test_with_equal_tries_fedrep_comes_near():
    lines = (ROOT / "evidence/four-tries/cifar10-recommended.jsonl").read_text().splitlines()
    cells = {(cell["config"]["scenario"], cell["method"]): cell for cell in map(json.loads, lines)}
    at = [cells[scenario, "fedrep"] for scenario in ("dir-0.1", "skew-1", "iid")]
    chosen = {"schedule": "cosine", "local_steps": 300, "weight_decay": 0.03}
    assert all(cell["config"]["hyper"].items() >= chosen.items() for cell in at)
    means = [100 * cell["metrics"]["mean_accuracy"] for cell in at]
    told = "{:.1f}, {:.1f} and {:.1f} % at `dir-0.1`, `skew-1` and `iid`".format(*means)
    assert told in " ".join(FINDINGS.split())
    assert "at `dir-0.1` ({:.1f}) and nearer at `skew-1` ({:.1f})".format(*means) in " ".join(README.split())


def paired():
    """Points of frame over each rival in each scenario of digits: mean and half of the 95 % interval, by seed."""
    found = defaultdict(dict)
    for line in (ROOT / "evidence/digits-recommended.jsonl").read_text().splitlines():
        cell = json.loads(line)
        found[cell["method"], cell["config"]["scenario"]][cell["seed"]] = cell["metrics"]["mean_accuracy"]
    differences = {
        (rival, scenario): [100 * (found["frame", scenario][seed] - found[rival, scenario][seed]) for seed in range(10)]
        for rival in RIVALS
        for scenario in SCENARIOS
    }
    return {key: (fmean(each), 2.262 * stdev(each) / 10**0.5) for key, each in differences.items()}  # t of 9 degrees


def higher_mean(table, case, other):
    return table.get(case, "fibfl++").mean > table.get(case, other).mean


@pytest.mark.parametrize("code", BLOCKS)
def test_python_examples_run(code, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out


def test_links_lead_somewhere():
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", README):
        assert (ROOT / target).exists(), target


def test_what_we_found_is_what_the_evidence_says():
    found = " ".join(FINDINGS.partition("## What we found")[2].partition("\n## ")[0].split())
    tables = shipped()
    table = tables["recommended"]

    def gains(other):
        return {
            case: 100 * (own.mean - theirs.mean)
            for case in CASES
            if (own := table.get(case, "fibfl++")) and (theirs := table.get(case, other))
        }

    fedavg, local, fedrep, rdfl = (gains(other) for other in ("fedavg", "local", "fedrep", "rdfl"))
    assert f"than `fedavg` in {sum(gain > 0 for gain in fedavg.values())} of {len(fedavg)} cases" in found
    assert f"by {max(fedavg.values()):.1f} points" in found
    assert f"than training alone in {sum(gain > 0 for gain in local.values())} of {len(local)}." in found
    assert f"of the {len(fedrep)} cases run so far" in found
    assert f"is above it in {sum(gain > 0 for gain in fedrep.values())};" in found
    assert f"(CIFAR-10: {min(fedavg.values()):.1f} points)" in found
    assert f"(digits at `dir-0.1`: {min(local.values()):.1f} points)" in found
    for other, cases, said in (
        ("fedavg", fedavg, "{} won, {} lost and {} too close to call against `fedavg`"),
        ("local", local, "{}, {} and {} against training alone"),
        (
            "fedrep",
            fedrep,
            "beyond noise {} are won, {} lost (CIFAR-10 at `dir-0.1` and `skew-1`) and {} too close to call",
        ),
        ("rdfl", rdfl, "Against `rdfl`, the plain ring, {} are won, {} lost and {} too close to call"),
    ):
        judged = [higher("fibfl++", other)(table, case) for case in cases]
        assert said.format(*(judged.count(each) for each in (True, False, "too close"))) in found
    collapsed = 100 * tables["published"].get(("digits", "dir-0.1"), "fedrep").mean
    assert f"has {collapsed:.1f} % as published" in found
    for dataset, clients in (("digits", "five clients"), ("mnist", "ten")):
        sent = [table.get((dataset, "iid"), method, "bytes_per_round").mean for method in ("fibfl++", "fedavg")]
        assert re.search(rf"{sent[0] / sent[1]:.1f} times [^,.]*with {clients}", found)
    verdicts = [claim.check(published()).verdict for claim in CLAIMS]
    counts = [verdicts.count(verdict) for verdict in ("holds", "fails", "undecided")]
    assert f"Of {len(CLAIMS)} claims of the paper, {counts[0]} hold" in found
    assert "{} fail and {} cannot be decided".format(*counts[1:]) in found
    ours, printed = tables["published"].savings, published().savings
    same = sum(f"{ours[case]:.1f}" == f"{saving:.1f}" for case, saving in printed.items())
    assert f"{same} of the {len(printed)} that it prints" in found


def test_private_heads_do_not_collapse_when_tests_match():
    stated = float(re.search(r"and ([0-9.]+) % once clients", FINDINGS)[1])
    runs = [
        firma.run("digits", "dir-0.1", "fedrep", preset="published", settings={"tests": "matched"}, seed=seed)
        for seed in range(5)
    ]
    assert 100 * sum(run.metrics["mean_accuracy"] for run in runs) / 5 == pytest.approx(stated, abs=1)
