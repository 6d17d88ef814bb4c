"""One member of five lies, in every exchange, with a valid certificate: real processes, the method of the ring file."""

import json

import numpy as np
import pytest

from firma.errors import BadInput
from firma.methods import ROBUST_METHOD
from firma.peer.agreed_text import agreed_lines
from firma.peer.ring_file import checked, read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.evidence import examined

from .conftest import NAMES, made_ring
from .crew import Crew
from .test_node import simulated

LIAR = 2
HONEST = tuple(n for n in range(5) if n != LIAR)
NUMBERS = {"extractor_epochs": 10, "hidden": 64, "embedding": 32}


def lied_to(made, *fault):
    """The ring with one liar, run to its end."""
    crew = Crew(made)
    try:
        for number in range(5):
            crew.start(number, *((fault,) if fault and number == LIAR else ()))
        codes = crew.finish(*HONEST, timeout=180)
    finally:
        crew.end()
    assert codes == [0] * 4, {NAMES[n]: crew.out(n)[-600:] for n in HONEST}
    return crew


def honest_mean(made):
    found = [json.loads((made.folder / NAMES[n] / "outcome.json").read_text())["history"][-1] for n in HONEST]
    return float(np.mean(found))


def test_absurd_values_in_the_warm_up_of_a_plain_ring_end_nobody(tmp_path):
    """A plain average bears no liar, but finite poison is kept out of it, and its sender is named and can be proved."""
    made = made_ring(tmp_path, "fibfl++", 5, 6, "iid", set=NUMBERS)
    crew = lied_to(made, "lie", "absurd", 3e38)
    assert honest_mean(made) > 0.8
    name = NAMES[LIAR]
    for number in HONEST:
        parameters = checkpoint.read(made.state(number), 6, made.ring.digest).tensors["parameters"]
        assert float(parameters.abs().max()) < 100
    neighbours = [n for n in HONEST if crew.events(n, "absurd")]
    assert len(neighbours) >= 2
    for number in neighbours:
        assert {event["member"] for event in crew.events(number, "absurd")} == {name}
        assert f"{name} sent a" in crew.out(number)
        kept = [each for each in examined(made.state(number) / "evidence.jsonl").kept if each.sender == name]
        assert kept
        assert min(each.norm for each in kept) > 1e38


ATTACKS = {
    "noise x100": ("lie", "noise", 100.0),
    "noise": ("lie", "noise", 10.0),
    "sign-flip": ("lie", "sign-flip"),
    "absurd": ("lie", "absurd", 3e38),
    "label-flip": (),
}


def robust_ring(folder, attack, scenario="iid", rounds=6, numbers=NUMBERS):
    made = made_ring(folder, ROBUST_METHOD, 5, rounds, scenario, set=numbers)
    if attack == "label-flip":
        held = dict(np.load(made.data(LIAR)))
        np.savez(made.data(LIAR), **(held | {"y": 9 - held["y"]}))
    return made


def assert_withstood(tmp_path, attack, scenario="iid", **changes):
    made = robust_ring(tmp_path, attack, scenario, **changes)
    truthful = float(np.delete(simulated(made, scenario).history[-1], LIAR).mean())
    lied_to(made, *ATTACKS[attack])
    assert truthful - honest_mean(made) < 0.02, attack


def test_one_liar_of_five_costs_less_than_two_points_by_default(tmp_path):
    assert_withstood(tmp_path, "sign-flip")


@pytest.mark.slow
@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if attack != "sign-flip"])
def test_no_attack_costs_more_than_two_points_by_default(tmp_path, attack):
    assert_withstood(tmp_path, attack)


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_costs_more_than_two_points_where_members_differ(tmp_path, attack):
    """The default ring file, its own numbers, and data of which every member has other classes."""
    assert_withstood(tmp_path, attack, "dir-0.5", rounds=8, numbers={})


def ring_file(command, folder, members, *words):
    for number, name in enumerate(NAMES[:members]):
        if not (folder / name).exists():
            command("init", name, f"127.0.0.1:{7001 + number}", "--identity", folder / name)
    chosen = [word for name in NAMES[:members] for word in ("--member", folder / name / "site.toml")]
    path = folder / f"ring{len(list(folder.glob('*.toml')))}.toml"
    found = command("ring-file", path, *chosen, "--federation", "t", "--shape", "8x8", "--labels", "10", *words)
    return path, *found


def test_a_ring_that_bears_insiders_is_robust_by_default(command, tmp_path):
    path, code, out, err = ring_file(command, tmp_path, 4)
    assert code == 0, err
    ring = read_ring(path)
    assert (ring.insiders, ring.method) == (1, ROBUST_METHOD)
    assert "combined robustly (clipped)" in out
    assert "1 may send any extractor without spoiling the others'" in out
    for members, words in ((3, ()), (4, ("--insiders", "0"))):
        path, code, _, err = ring_file(command, tmp_path, members, *words)
        assert code == 0, err
        assert read_ring(path).method == "fibfl++"
    path, code, out, err = ring_file(command, tmp_path, 4, "--method", "fibfl")
    assert (code, "WARNING: extractors are not combined robustly" in out) == (0, True), err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--method", "frame"), "method 'frame' averages by sums (all-reduce), which one member can poison"),
        (("--method", "fibfl++", "--rounds", "12"), "the warm-up of method 'fibfl++' averages by sums"),
        (("--method", "fibfl:combine=clipped", "--set", "byzantine=0"), "byzantine = 0 is less than insiders = 1"),
    ],
)
def test_plain_averages_and_insiders_exclude_each_other(command, tmp_path, words, says):
    path, code, _, err = ring_file(command, tmp_path, 4, *words)
    assert (code, says in err, path.exists()) == (2, True, False), err
    assert err.count("\n") == 1


def test_more_insiders_need_a_combine_that_bears_them(tmp_path):
    made = made_ring(tmp_path, ROBUST_METHOD, 5, 3, insiders=1)
    values = made.ring.model_dump(mode="json", exclude={"flower", "method"})
    seven = [*values["members"]]
    assert checked(values).method == ROBUST_METHOD
    with pytest.raises(BadInput, match="requires at least 7 members"):
        checked(values | {"insiders": 2, "members": seven})
    assert dict(agreed_lines(made.ring))["insiders"].endswith("without spoiling the others'")
