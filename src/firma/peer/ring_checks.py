"""What a ring file must satisfy beyond the form of its fields: members, method, liars that it bears, model, summary."""

import math
from typing import TYPE_CHECKING

from firma.algorithms.catalogue import check_start
from firma.errors import BadInput
from firma.flower.description import check_package
from firma.flower.requirements import check_head, hyper_of, trainable
from firma.method_lookup import lookup
from firma.methods import Method, own_algorithm
from firma.mixing.combine import check_members
from firma.mixing.kind import kind_of
from firma.models.build import ModelSpec, run_settings
from firma.peer.identity import certified_name, read_certificate
from firma.schedule import plan
from firma.settings import NEUTRAL_SETTINGS

if TYPE_CHECKING:
    from firma.peer.ring_file import Ring

_COUNTS = 20_000  # members times labels of a summary with numbers per class: what one message holds


def check_ring(ring: "Ring") -> None:
    """Refuse a ring whose parts do not fit together; the first mistake is told."""
    if own_algorithm(lookup(ring.method)):
        raise BadInput(
            f"ring file: method = {ring.method!r}: its algorithm is code of your own, which peers do not run; use it "
            "with firma run, and choose a method of the table here"
        )
    _check_flower(ring)
    _check_members(ring)
    endless = [key for key, value in ring.set.items() if isinstance(value, float) and not math.isfinite(value)]
    if endless:
        raise BadInput(f"ring file: {endless[0]} = {ring.set[endless[0]]}: must be a finite number")
    if ring.flower is None:
        _check_model(ring)
    _check_method(ring)
    _check_summary(ring)


def _check_method(ring: "Ring") -> None:
    """A method must be one that peers can run: no server, extractors only, and nothing that they agree not to tell."""
    row, hyper = ring.row, ring.hyper
    for name in ("reorder_every", "reorder_when"):
        if getattr(hyper, name) != NEUTRAL_SETTINGS[name]:
            raise BadInput(
                f"ring file: {name} = {getattr(hyper, name)}: real members order the ring when it forms or when "
                "somebody is lost, not every so many rounds; remove it"
            )
    usual = plan(row, hyper, len(ring.members), ring.rounds, ring.rounds - 1)
    if kind_of(usual.mixing).NEEDS_SERVER or usual.shares != "extractor":
        raise BadInput(
            f"ring file: method = {ring.method!r}: peers require a method without a server that shares extractors "
            f"only{_server_free(row)}"
        )
    if row.topology in ("regular", "edges"):
        raise BadInput(
            f"ring file: method = {ring.method!r}: peers require a graph that exists for any number of members: "
            "topology = ring, complete, exponential, one-peer-exponential or torus"
        )
    if row.order == "bandwidth":
        raise BadInput(
            f"ring file: method = {ring.method!r}: peers cannot have order = 'bandwidth'; write the ring file with "
            "firma ring-file --bandwidth, which orders the members, and a method with order = 'given'"
        )
    _check_insiders(ring)
    try:
        check_start(row, hyper)
        check_members(row, hyper, len(ring.members), ring.rounds, ring.wire)
    except BadInput as error:
        raise BadInput(f"ring file: {error}") from None
    if row.personal != "none" and hyper.personal_share == "auto" and ring.proportions != "plain":
        raise BadInput(
            f"ring file: proportions = {ring.proportions!r} cannot be combined with personal_share = 'auto' of method "
            f"{ring.method!r}, which sends exact class shares with the extractor; set personal_share=0.5, for example"
        )
    if row.warmup == "yes" and hyper.warmup_shares != "extractor":
        raise BadInput(
            f"ring file: warmup_shares = {hyper.warmup_shares!r}: would send heads to a server; must be extractor"
        )


def _check_summary(ring: "Ring") -> None:
    """A summary must be of results that every site has, and small enough for one message."""
    if ring.summary == "none":
        return
    if ring.flower is not None:
        raise BadInput(
            f"ring file: summary = {ring.summary!r} cannot be combined with [flower]: an app does not say what its "
            "test data are; set summary = 'none'"
        )
    if ring.summary == "classes" and ring.task.kind == "regression":
        raise BadInput("ring file: summary = 'classes': regression has no classes; set summary = 'accuracy'")
    counts = len(ring.members) * len(ring.task.labels)
    if ring.summary == "classes" and counts > _COUNTS:
        raise BadInput(
            f"ring file: summary = 'classes': {len(ring.members)} members with {len(ring.task.labels)} labels are "
            f"{counts:,} numbers, at most {_COUNTS:,} are allowed; set summary = 'accuracy'"
        )


def _check_insiders(ring: "Ring") -> None:
    """With members that may lie, nothing is averaged by sums, and a robust combine must withstand as many."""
    row, hyper = ring.row, ring.hyper
    if not ring.insiders:
        return
    kinds = [plan(row, hyper, len(ring.members), ring.rounds, number).mixing for number in (0, ring.rounds - 1)]
    if "all-reduce" in kinds:
        part = "" if kinds[-1] == "all-reduce" else "the warm-up of "
        instead = "warmup=no" if part else "topology=all-gather,combine=clipped"
        joint = "," if ":" in ring.method else ":"
        raise BadInput(
            f"ring file: {part}method {ring.method!r} averages by sums (all-reduce), which one member can poison "
            f"unnoticed, but insiders = {ring.insiders}; leave the method out (then it is robust), use "
            f"{ring.method + joint + instead!r}, or set insiders = 0 if every member is trusted"
        )
    if row.combine != "mean" and hyper.byzantine < ring.insiders:
        raise BadInput(
            f"ring file: byzantine = {hyper.byzantine} is less than insiders = {ring.insiders}; set byzantine = "
            f"{ring.insiders}"
        )


def _server_free(row: Method) -> str:
    """What runs between peers instead of a method with a server, if that shares extractors only."""
    if row.topology != "star" or row.shares != "extractor":
        return ""
    joint = "," if ":" in row.name else ":"
    return f"; without a server the same average is {row.name + joint + 'topology=all-reduce'!r}"


def _check_flower(ring: "Ring") -> None:
    """A ring has either a task or a Flower app; an app must be one that peers can train."""
    if ring.flower is None:
        missing = [name for name in ("shape", "labels") if not getattr(ring.task, name)]
        if missing:
            raise BadInput(f"ring file: task.{missing[0]} is missing")
        return
    try:
        trainable(ring.row)
        hyper_of(ring.row, ring.set)
        check_head(ring.row, ring.flower.head, ())
        check_package(ring.flower)
        if not ring.flower.files:
            raise BadInput("flower.files is missing: the hashes of the app's files, which firma ring-file writes")
    except BadInput as error:
        raise BadInput(f"ring file: {error}") from None
    if ring.task != type(ring.task)():  # all of it is as by default
        raise BadInput("ring file: [task] cannot be combined with [flower], whose app has its own data and model")


def _check_members(ring: "Ring") -> None:
    for what in ("name", "address", "certificate"):
        values = [getattr(member, what) for member in ring.members]
        twice = next((member for member in ring.members if values.count(getattr(member, what)) > 1), None)
        if twice is not None:
            raise BadInput(f"ring file: two members have the {what} of {twice.name}; each member needs its own")
    for member in ring.members:
        if certified_name(read_certificate(member.certificate.encode())) != member.name:
            raise BadInput(
                f"ring file: the certificate of {member.name} is for another name; ask the site for the right one"
            )
    if ring.insiders and len(ring.members) < 3 * ring.insiders + 1:
        raise BadInput(
            f"ring file: insiders = {ring.insiders}: requires at least {3 * ring.insiders + 1} members, "
            f"{len(ring.members)} are listed; set a smaller number, or 0"
        )
    if ring.quorum and not ring.least <= ring.quorum <= len(ring.members):
        raise BadInput(
            f"ring file: quorum = {ring.quorum}: must be from {ring.least} to {len(ring.members)} for "
            f"{len(ring.members)} members of whom {ring.insiders} may lie (insiders), or 0"
        )
    if len(set(ring.task.labels)) < len(ring.task.labels):
        raise BadInput("ring file: labels must not repeat")
    columns = ring.task.columns
    if columns and (len(columns),) != ring.task.shape:
        raise BadInput(
            f"ring file: {len(columns)} columns for inputs of shape {ring.task.shape}; the shape must be "
            f"({len(columns)},)"
        )
    if len(set(columns)) < len(columns):
        raise BadInput("ring file: columns must not repeat")
    if ring.task.types and len(ring.task.types) != len(columns):
        raise BadInput(
            f"ring file: {len(ring.task.types)} types for {len(columns)} columns; each column needs one, or none"
        )
    if ring.flower is None:
        _check_task(ring)


def _check_task(ring: "Ring") -> None:
    task = ring.task
    if task.kind == "classification" and len(task.labels) < 2:
        raise BadInput(f"ring file: labels = {list(task.labels)}: must be at least two; or set kind = 'regression'")
    if task.edges and (task.kind != "regression" or list(task.edges) != sorted(set(task.edges))):
        raise BadInput(f"ring file: edges = {list(task.edges)}: must increase, and require kind = 'regression'")
    if task.kind == "regression" and not task.edges and ring.row.order != "given" and ring.proportions != "none":
        raise BadInput(
            f"ring file: method {ring.method!r} orders the ring by proportions, which for regression require edges: "
            "agree on values that cut the target into classes (--edges 10,20,50), or set proportions = 'none'"
        )


def _check_model(ring: "Ring") -> None:
    """What can be said about the model without its code."""
    task = ring.task
    try:
        run_settings(ModelSpec(task.model), ring.set)
    except BadInput as error:
        raise BadInput(f"ring file: {error}") from None
    if task.model == "mlp" and task.model_set:
        name = next(iter(task.model_set))
        raise BadInput(f"ring file: {name} of model mlp belongs in [set], not in [task.model_set]")
    if task.is_own_code and not (task.files and task.layout):
        raise BadInput(
            f"ring file: model = {task.model!r} requires the hashes of its files and its layout; write the ring file "
            "with firma ring-file"
        )
    if ring.set.get("standardise") == "constants":
        raise BadInput(
            "ring file: standardise = 'constants': only mnist, fashion-mnist and cifar10 have them; use per-client"
        )
    if ring.standardise and task.dtype == "int64":
        raise BadInput(
            "ring file: standardise = 'per-client' cannot be combined with dtype = 'int64': tokens have no mean"
        )
    for name, value in task.model_set.items():
        every = value if isinstance(value, list | tuple) else [value]
        if any(isinstance(each, float) and not math.isfinite(each) for each in every):
            raise BadInput(f"ring file: model_set.{name} = {value}: must be finite")
        if not all(isinstance(each, bool | int | float | str) for each in every):
            raise BadInput(f"ring file: model_set.{name} = {value}: must be a number, a string, true, false, or a list")
