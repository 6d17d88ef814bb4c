"""Progress on stderr: sparse lines in a log, nothing where nobody asked."""

import json
import re
from itertools import pairwise

import pytest

import firma
from firma import progress

LINE = re.compile(
    r"(\S+) seed (\d+): round (\d+) of 4, mean accuracy 0\.\d{3}(, run \d of 2)?, (about \d+ s left|\d+ s in total)"
)
QUICK = ["--rounds", "4", "--set", "epochs=0"]


@pytest.fixture
def impatient(monkeypatch):
    """A line is due after every round, as if each took ten minutes."""
    monkeypatch.setattr(progress, "FIRST", 0.0)
    monkeypatch.setattr(progress, "LONGEST", 0.0)


@pytest.mark.parametrize(
    ("each", "rounds", "fewest", "most"), [(1, 36_000, 100, 150), (0.05, 1000, 4, 5), (900, 8, 8, 8)]
)
def test_a_log_gets_few_lines_however_many_rounds_there_are(each, rounds, fewest, most):
    now = 0.0
    pace = progress.Pace(lambda: now)
    said = []
    for _ in range(rounds):
        now += each
        if pace.due():
            said.append(now)
    assert fewest <= len(said) <= most
    assert said[0] == pytest.approx(max(each, progress.FIRST), abs=each)
    assert all(later - sooner <= progress.LONGEST + each for sooner, later in pairwise(said))


def test_a_short_run_is_silent_in_a_log(command):
    assert command("run", "--method", "local", *QUICK)[2] == ""


def test_a_long_run_says_where_it_is(command, impatient):
    code, out, err = command("run", "--method", "local", "--method", "fedavg", "--json", *QUICK)
    assert code == 0
    assert len(json.loads(out)["results"]) == 2
    lines = [LINE.fullmatch(line) for line in err.splitlines()]
    assert all(lines), err
    assert [line[1] for line in lines] == ["local"] * 4 + ["fedavg"] * 4
    assert [line[4] for line in lines[:5:4]] == [", run 1 of 2", ", run 2 of 2"]
    assert [line[3] for line in lines[:4]] == ["1", "2", "3", "4"]
    assert lines[-1][5].endswith("in total")
    assert command("run", "--method", "local", "--quiet", *QUICK)[2] == ""


def test_python_is_quiet_unless_asked(capsys, impatient):
    seen = []
    given = {"method": "local", "rounds": 4, "settings": {"epochs": 0}, "on_round": lambda *told: seen.append(told[:2])}
    firma.run(**given)
    firma.run(progress=False, **given)
    assert capsys.readouterr() == ("", "")
    firma.run(progress=True, **given)
    out, err = capsys.readouterr()
    assert out == ""
    assert [LINE.fullmatch(line)[3] for line in err.splitlines()] == ["1", "2", "3", "4"]
    assert seen == [("local", 0)] * 12


def test_other_tasks_show_their_own_metric(capsys, impatient):
    import numpy as np

    x = np.random.default_rng(0).normal(size=(60, 3)).astype("float32")
    firma.run((x, x[:, 0] * 2.5), "iid", "local", task="regression", clients=2, rounds=1, progress=True)
    assert re.match(r"local seed 0: round 1 of 1, mean R² -?\d+\.\d{3}, ", capsys.readouterr().err)


def test_the_time_left_is_that_of_the_last_rounds():
    """Rounds that come from a checkpoint take no time and say nothing about the others."""
    count = progress._Count(rounds=100, runs=1)
    count.recent.extend(count.started + (0 if done < 40 else done - 39) for done in range(60))
    count.done = 60
    assert count._time_left() == "about 40 s left"


def test_the_first_round_waits_for_the_start_and_says_nothing_about_the_others():
    count = progress._Count(rounds=10, runs=1)
    count.recent.extend([count.started + 150, count.started + 151])
    count.done = 2
    assert count._time_left() == "about 8 s left"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0 s"), (59, "59 s"), (90, "2 min"), (9000, "2.5 h")])
def test_durations_are_short(seconds, text):
    assert progress.duration(seconds) == text
