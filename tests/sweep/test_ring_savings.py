"""firma reproduce --rings: what 2-opt saves, known without training."""

import pytest

from firma.sweep.result_table import result_tables
from firma.sweep.ring_savings import read_ring_orders
from firma.sweep.store import read_results


@pytest.fixture
def reproduce(command, tmp_path):
    return lambda *words: command("reproduce", "--rings", "--out", tmp_path, *words)


def test_rings_are_ordered_without_a_run_and_reported(reproduce, command, tmp_path):
    code, out, _ = reproduce("--dataset", "digits")
    assert code == 0
    assert "14 rings ordered" in out
    assert not list(tmp_path.glob("*.jsonl"))
    table = result_tables(read_results(tmp_path))["published"]
    assert f"{table.savings['digits', 'dir-0.1']:.1f}" == "70.4"  # as the paper has it
    assert table.statistics == {}
    code, out, _ = command("report", tmp_path, "--print", "csv", "--table", "savings-published")
    assert code == 0
    assert "\ndigits," in out
    assert command("report", tmp_path)[0] == 0
    assert "savings-published" in (tmp_path / "report.html").read_text()


def test_rings_are_added_to_those_that_are_there(reproduce, tmp_path):
    for scenario in ("iid", "dir-0.1", "iid"):
        reproduce("--dataset", "digits", "--scenario", scenario, "--preset", "paper")
    rings = read_ring_orders(tmp_path)
    assert [ring.identity for ring in rings] == [("paper", "digits", "iid"), ("paper", "digits", "dir-0.1")]
    assert sorted(rings[1].order) == [0, 1, 2, 3, 4]
    assert rings[1].saving_percent == pytest.approx(100 * (1 - rings[1].cost_optimised / rings[1].cost_identity))


def test_a_ring_is_that_of_a_cell(reproduce, command, tmp_path):
    words = ["--dataset", "digits", "--scenario", "dir-0.1", "--preset", "paper"]
    reproduce(*words)
    command("reproduce", *words, "--method", "local", "--seeds", "1", "--rounds", "1", "--out", tmp_path)
    results = read_results(tmp_path)
    assert results.cells[0].ring["order"] == list(results.ring_orders[0].order)
    assert results.cells[0].ring["saving_percent"] == results.ring_orders[0].saving_percent


def test_changed_federations_and_damaged_files_are_refused(reproduce, command, tmp_path):
    code, _, err = reproduce("--dataset", "digits", "--clients", "7")
    assert code == 2
    assert "firma ring" in err
    reproduce("--dataset", "digits", "--scenario", "iid")
    (tmp_path / "rings.csv").write_text("preset,dataset\npaper,digits\n")
    code, _, err = command("report", tmp_path)
    assert code == 2
    assert "rings.csv is damaged" in err
    assert err.count("\n") == 1
