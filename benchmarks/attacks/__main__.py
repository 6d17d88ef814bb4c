"""Every known attack on a ring of five real sites on loopback, what it did once, and what it does now.

    python -m benchmarks.attacks OUT.jsonl                # run what is missing, then print the tables
    python -m benchmarks.attacks OUT.jsonl --row F        # one letter, or one name such as A3
    python -m benchmarks.attacks OUT.jsonl --table        # print the tables only

Every member is the command `firma join` in a process of its own, with real keys, TLS and sockets; the misbehaviour is
planted in its process by the helpers of the tests (`tests/peer/crew.py`, `insider.py`, `proxy.py`). The ring file is
the default one unless the row says otherwise; data are digits, patience is 10 s. "Before" is what the same attack did
before there was a defence, with patience 3 to 10 s. A line of the file is one measurement: delete it to measure again.
"""

import argparse
import json
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from firma.methods import ROBUST_METHOD

from . import insiders, outside
from .sites import Found

SEEDS = {"iid": 1, "dir-0.5": 2}


@dataclass(frozen=True, slots=True)
class Attack:
    """One row of the table."""

    name: str
    what: str
    before: str
    run: Callable[[Path], Found]


_STOPPED = "the whole ring stood still for as long as it lasted, without a word on any terminal"
_ENDED = "ended all four honest sites, also with `--verify-gate`; the message blamed their own learning rate"
TABLE = (
    Attack("A1", "one line carries heartbeats, and no messages one way", _STOPPED, insiders.one_way_line),
    Attack("A2", "NAT without a forwarded port: nobody can call one member", _STOPPED, insiders.behind_nat),
    Attack("A3", "a member is alive and sends no message", _STOPPED, insiders.mute),
    Attack("A4", "a member sends one byte per second", _STOPPED, insiders.byte_per_second),
    Attack("A5", "a member takes messages and never acknowledges one", _STOPPED, insiders.never_acknowledges),
    Attack(
        "B1", "forged decided views, number 4294967295 and the next, right and wrong process numbers",
        "all five went back to round 1, rounds 38 to 44 were deleted; with wrong process numbers nobody trained again, "
        "two sites could not read their promises, one had no checkpoint left", insiders.forged_views,
    ),
    Attack("B2", "proposals of new views without end", "not measured", insiders.endless_proposals),
    Attack(
        "B3", "an old backup of one honest site, promises included, is put back",
        "the whole ring went from round 50 to 11", insiders.old_backup,
    ),
    Attack(
        "C1", "1,100 idle connections, opened again as soon as they are cut; soft limit of open files 1,024",
        "ended the member, three of three", outside.idle_soft,
    ),
    Attack("C2", "1,100 idle connections; hard limit 1,024", "ended the member, three of three", outside.idle_hard),
    Attack("D1", "3e38 in the sums of the warm-up (`fibfl++`, `insiders = 0`)", _ENDED, insiders.poisoned_sums),
    Attack("D2", "3e38 in gossip (`fibfl++:warmup=no`)", "not measured", insiders.poisoned_gossip),
    Attack("D3", "3e38, default ring file", "there was no such default", insiders.poisoned_default),
    Attack("E", "a member refuses every message", "three of four honest members left", insiders.refuses_everything),
    Attack(
        "G1", "all are killed after the last round is saved; each resumes alone",
        "waited 600 s, then exit code 3 and “go on with --resume”, for ever; no result.json",
        outside.killed_after_the_last_round,
    ),
    Attack(
        "G2", "a member returns after many rounds", "never got the final extractor", outside.latecomer
    ),
    Attack("G3", "a member returns when all others have ended", "never got the final extractor", outside.too_late),
    Attack("G4", "a member loses its disk", "could not come back", outside.lost_disk),
    Attack("H1", "a line of the audit file is cut off", "`firma audit` failed for good", outside.torn_line),
    Attack(
        "H2", "other users of the machine", "state folder and checkpoints with the head were world-readable",
        outside.permissions,
    ),
    Attack("H3", "certificates out of date", "`join` did not look", outside.dates),
    Attack(
        "H4", "400 strangers on the port, 300 broken requests to the metrics",
        "979 raw lines of gRPC on stderr; 102 tracebacks of the metrics port", outside.raw_lines,
    ),
    Attack("I1", "columns in another order", "accepted silently: 1.000 became .889", outside.columns),
    Attack("I2", "a site has one class", "refused", outside.one_class),
    Attack("I3", "unusable data", "`doctor` did not look at them", outside.bad_data),
    Attack("I4", "a ring file is agreed to unseen", "labels, shape, settings not shown", outside.agreed_unseen),
    Attack("I5", "an encrypted key", "“not a private key”", outside.encrypted_key),
    Attack("I6", "a float64 of 1e300 in the data", "joined", outside.absurd_inputs),
)  # fmt: skip


def _lies() -> list[Attack]:
    """Row F: one ring for each lie, split and seed; the costs are computed when all are there."""
    found = []
    for model, numbers in (("", {}), (" small", insiders.SMALLER)):
        for scenario, seeds in SEEDS.items():
            if model and scenario == "iid":
                continue
            for seed in range(seeds):
                for lie in insiders.LIES:
                    run = partial(
                        insiders.lied_to, scenario=scenario, seed=seed, lie=lie, method=ROBUST_METHOD, numbers=numbers
                    )
                    found.append(Attack(f"F {scenario}{model} seed {seed} {lie}", lie, "", run))
    return found


ATTACKS = (*TABLE, *_lies())


def measured(attack: Attack) -> dict[str, Any]:
    """One attack, as a line of the file; what the benchmark itself could not do counts as a promise that is broken."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="attack-") as folder:
        try:
            found = attack.run(Path(folder))
        except Exception:
            text = traceback.format_exc()
            found = Found(False, f"the measurement failed: {text.splitlines()[-1][:300]}", {"traceback": text[-3000:]})
    took = round(time.monotonic() - began, 1)
    return {
        "name": attack.name, "kept": found.kept, "now": found.now, "facts": found.facts, "seconds": took,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }  # fmt: skip


def table(lines: list[dict[str, Any]]) -> str:
    """Attack, before, now, in Markdown."""
    known = {line["name"]: line for line in lines}
    rows = ["| | attack | before | now |", "|---|---|---|---|"]
    for attack in TABLE:
        if attack.name in known:
            now = known[attack.name]["now"]
            rows.append(f"| {attack.name} | {attack.what} | {attack.before} | {now} |")
    return "\n".join(rows)


def lies_table(lines: list[dict[str, Any]]) -> str:
    """What each lie costs the honest four, in points of their mean accuracy, seed by seed."""
    facts = [line["facts"] for line in lines if line["name"].startswith("F ") and line["facts"].get("lie")]
    names = [lie for lie in insiders.LIES if lie != "honest"]
    rows = [
        "| digits, 1 of 5 lies, 8 rounds | seeds | honest ring | " + " | ".join(names) + " |",
        "|---|---|---|" + "---|" * len(names),
    ]
    for key in dict.fromkeys((each["scenario"], each["model"]) for each in facts):
        chosen = [each for each in facts if (each["scenario"], each["model"]) == key]
        honest = {each["seed"]: each["honest_mean"] for each in chosen if each["lie"] == "honest"}
        texts = []
        for lie in names:
            lied = {each["seed"]: each["honest_mean"] for each in chosen if each["lie"] == lie}
            costs = [100 * (lied[seed] - honest[seed]) for seed in sorted(lied.keys() & honest.keys())]
            worst = f" ({', '.join(f'{each:+.1f}' for each in costs)})" if len(costs) > 1 else ""
            texts.append(f"{statistics.mean(costs):+.1f}{worst}" if costs else "")
        mean = f"{100 * statistics.mean(honest.values()):.1f}" if honest else ""
        rows.append(f"| {key[0]}, {key[1]} model | {len(honest)} | {mean} | " + " | ".join(texts) + " |")
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--row", action="append", help="only attacks whose name begins like this, such as F or A3")
    parser.add_argument("--table", action="store_true", help="run nothing")
    asked = parser.parse_args()
    lines = [json.loads(line) for line in asked.file.read_text().splitlines()] if asked.file.exists() else []
    done = {line["name"] for line in lines}
    for attack in () if asked.table else ATTACKS:
        if attack.name in done or (asked.row and not attack.name.startswith(tuple(asked.row))):
            continue
        lines.append(measured(attack))
        with asked.file.open("a") as file:
            file.write(json.dumps(lines[-1]) + "\n")
        print(
            attack.name,
            "kept" if lines[-1]["kept"] else "BROKEN",
            f"{lines[-1]['seconds']:.0f} s",
            lines[-1]["now"],
            flush=True,
        )
    print(table(lines), lies_table(lines), sep="\n\n")
    broken = [line["name"] for line in lines if not line["kept"]]
    if broken:
        raise SystemExit(f"not as promised: {', '.join(broken)}")


if __name__ == "__main__":
    main()
