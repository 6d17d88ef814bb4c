"""What a ring file agrees on, in plain words, for the person who is to consent to it."""

from collections.abc import Iterator
from itertools import takewhile

from firma.mixing.kind import kind_of
from firma.peer.identity import fingerprint, fingerprint_bytes
from firma.peer.membership.exclusion import HOLD
from firma.peer.membership.line_monitor import LONGEST, ROUNDS, SHORTEST, TIMES, TRAINING
from firma.peer.ring_file import Ring
from firma.peer.spoken import spoken
from firma.peer.used_settings import used_numbers
from firma.schedule import plan

_PROPORTIONS = {
    "plain": "the exact shares of its classes",
    "noisy": "the shares of its classes with noise",
    "none": "nothing about its classes",
}

_RESULTS = {
    "none": "each site's stay there",
    "accuracy": "each site may choose to tell all members, after every round, its accuracy (or the task's main metric) "
    "on its own test data and how many test samples it has (firma join --share-results accuracy)",
    "classes": "each site may choose to tell all members, after every round, its accuracy (or the task's main metric) "
    "on its own test data and how many test samples it has (firma join --share-results accuracy), and also how many "
    "of them are of each class (--share-results classes): exact numbers about its data, which stay with the others",
}

_WAYS = {
    "ring": "extractors go to the two neighbours on the ring",
    "all-reduce": "extractors are averaged over all members",
    "all-gather": "every member gets every other's extractor",
    "complete": "every member gets every other's extractor",
}


def agreed_lines(ring: Ring) -> Iterator[tuple[str, str]]:
    """(what, in words) for everything in the digest but the members, in the order in which people ask."""
    yield "method", f"{ring.method}; {_sharing(ring)}"
    yield "rounds", f"{ring.rounds}, from seed {ring.seed}"
    if ring.continues is not None:
        earlier = bytes.fromhex(ring.continues.ring)
        yield "continues", (
            f"after round {ring.continues.round} of the ring whose digest is {spoken(earlier)}; only certificates and "
            "addresses may differ from it"
        )  # fmt: skip
    if ring.flower is not None:
        yield "Flower app", f"{ring.flower.app}, head {', '.join(map(str, ring.flower.head))}"
    else:
        yield from _task_lines(ring)
    files = (ring.task if ring.flower is None else ring.flower).files
    yield from ((f"code {name}", digest) for name, digest in files.items())
    changed = ", ".join(f"{name}={value}" for name, value in ring.set.items())
    yield "settings", f"preset {ring.preset}" + (f", changed: {changed}" if changed else "")
    if ring.flower is None:
        used = used_numbers(ring).items()
        yield "numbers", ", ".join(f"{name}={'none' if value is None else value}" for name, value in used)
    if ring.row.order != "given":
        noise = f" (epsilon {ring.epsilon:g})" if ring.proportions == "noisy" else ""
        yield "order", f"computed from what each site tells: {_PROPORTIONS[ring.proportions]}{noise}"
    yield "results", _RESULTS[ring.summary]
    yield "messages", f"numbers encoded as {ring.wire}"
    yield "quorum", f"{ring.needed} of {len(ring.members)} members, or the ring pauses; it starts with all"
    yield "insiders", _insiders(ring)
    yield from _patience_lines(ring)


def _patience_lines(ring: Ring) -> Iterator[tuple[str, str]]:
    """What the patience means: when somebody is left out, and for how long."""
    message = max(SHORTEST, ring.patience)
    yield "patience", f"{ring.patience:g} s; whoever is not heard by a neighbour for so long is left out"
    yield "deadlines", (
        f"a message must arrive, and be acknowledged, within {message:g} s of its last progress, or {TIMES:g} times "
        f"what is usual on its line (at most {LONGEST * message:g} s); a round of training may take "
        f"{ring.stalled:g} s, and after the first round at most {TRAINING * ring.patience:g} s or {ROUNDS:g} usual "
        "rounds, whichever is longer"
    )  # fmt: skip
    yield "left out", (
        f"of members between which messages miss their deadlines, the one with the most such lines, as long as "
        f"{ring.needed} remain; it is let in again when its lines work, after {HOLD * ring.patience:g} s at the "
        "earliest, and after twice as long each time"
    )  # fmt: skip
    yield "start", f"all must appear within {ring.gathering:g} s"


def _insiders(ring: Ring) -> str:
    members, spare = len(ring.members), len(ring.members) - ring.needed
    if not ring.insiders:
        return "none tolerated: every member is trusted not to lie in the agreement on who takes part"
    lying = f"{ring.insiders} of {members} may lie in the agreement on who takes part"
    told = f"{lying}; the ring goes on without {spare}, be they stopped or lying, and not without more"
    if ring.row.combine == "mean":
        return (
            f"{told}; WARNING: extractors are not combined robustly, so one that lies about its own spoils the others'"
        )
    return f"{told}; {ring.hyper.byzantine} may send any extractor without spoiling the others'"


def _sharing(ring: Ring) -> str:
    kinds = (
        kind_of(plan(ring.row, ring.hyper, len(ring.members), ring.rounds, number).mixing)
        for number in range(ring.rounds)
    )
    usual = kind_of(plan(ring.row, ring.hyper, len(ring.members), ring.rounds, ring.rounds - 1).mixing)
    warmup = sum(1 for _ in takewhile(lambda kind: kind is not usual, kinds))
    everyone = "extractors are averaged over all members"
    others = f"extractors go to the neighbours on the {ring.row.topology} graph"
    way = _WAYS.get(ring.row.topology, others)
    if warmup:
        way += f"; in the first {warmup} rounds {everyone}"
    if ring.row.combine != "mean":
        way += f"; what arrives is combined robustly ({ring.row.combine})"
    if ring.row.algorithm != "plain":
        way += f"; the algorithm {ring.row.algorithm} may send vectors of the same size with them"
    if ring.row.personal != "none" and ring.hyper.personal_share == "auto":
        way += "; the site's class shares go with them"
    gate = "; training accuracies go with them" if ring.row.gate == "yes" else ""
    return f"{way}{gate}; data and heads never leave a site"


def _task_lines(ring: Ring) -> Iterator[tuple[str, str]]:
    task = ring.task
    head = f", head {task.head}" if task.head else ""
    sizes = {"hidden": ring.hyper.hidden, "embedding": ring.hyper.embedding} if task.model == "mlp" else task.model_set
    yield "model", f"{task.model}{head}" + "".join(f", {name} = {value}" for name, value in sizes.items())
    kind = "tokens" if task.dtype == "int64" else f"numbers as they are, or bytes times {task.scale:.6g}"
    yield "inputs", f"shape {'x'.join(map(str, task.shape))}, {kind}"
    if task.columns:
        kinds = [f" ({kind})" for kind in task.types] or [""] * len(task.columns)
        yield "columns", ", ".join(f"{name}{of}" for name, of in zip(task.columns, kinds, strict=True))
    elif len(task.shape) == 1:
        yield "columns", "not listed, so nobody compares their order; --columns-of FILE lists those of a table"
    if ring.standardise:
        yield "scale", "each site standardises its inputs by its own training data"
    names = {"classification": "labels", "multi-label": "labels, several per sample", "regression": "targets"}
    yield names[task.kind], f"{len(task.labels)}: {', '.join(task.labels)}"
    if task.edges:
        yield "edges", ", ".join(f"{edge:g}" for edge in task.edges)


def member_lines(ring: Ring) -> Iterator[str]:
    """Each member with its address and its certificate, in hexadecimal and in words."""
    for member in ring.members:
        pem = member.certificate.encode()
        yield f"{member.name}  {member.address}  {fingerprint(pem)}"
        yield f"  in words: {spoken(fingerprint_bytes(pem))}"
