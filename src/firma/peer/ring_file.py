"""The ring file, `ring.toml`: all that the members have agreed on, and the digest by which they compare it."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from firma.encoding import Wire
from firma.errors import BadInput
from firma.flower.description import FlowerApp
from firma.method_lookup import lookup
from firma.methods import RING_METHOD, ROBUST_METHOD, Method
from firma.models.build import checked_name
from firma.models.catalogue import MODELS
from firma.peer.identity import Identity, canonical, check_address, check_name
from firma.peer.ring_checks import check_ring
from firma.settings import Hyper, Preset, hyper_for, sentence, split_for
from firma.tasks.task import TaskName

_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)
# Fields of a task that were added since version 0.2, and the value that leaves everything as it was. It is left out of
# the digest and of the file, so that ring files written before the field existed keep their digest; never change one.
NEUTRAL_TASK: Mapping[str, Any] = {
    "model_set": {}, "head": "", "dtype": "float32", "layout": {}, "files": {}, "frozen": "",
    "kind": "classification", "edges": [], "columns": [], "types": [],
}  # fmt: skip
ColumnType = Literal["number", "integer", "binary"]
Sharing = Literal["none", "accuracy", "classes"]  # what sites may tell all members about their results
_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Site(BaseModel):
    """One member, as `firma init` prints it: nothing here is secret."""

    model_config = _STRICT

    name: Annotated[str, AfterValidator(check_name)]
    address: Annotated[str, AfterValidator(check_address)]
    certificate: Annotated[str, AfterValidator(lambda pem: canonical(pem.encode()).decode())]


class Task(BaseModel):
    """What is learnt: inputs of `shape`, one of `labels`; byte inputs are multiplied by `scale`.

    For multi-label and regression, `labels` name the labels or the numbers to predict. `edges` cut a regression target
    into the classes whose proportions members publish to order the ring: quantiles of the data of all are nobody's to
    compute, so members agree on edges beforehand.

    A model is a built-in name or MODULE:FUNCTION. Its code does not travel: every site must have it, and `files` holds
    the SHA-256 of each file of it, `layout` the shapes of the tensors that members send, and `frozen` the SHA-256 of
    the parameters that are never trained, so that a site that would build another model notices.

    `columns` are the features of a table in their order; a site whose table has them in another order is put right.
    `types` says of each whether it holds any number, integers, or 0 and 1; a site whose table has others is refused.
    """

    model_config = _STRICT

    shape: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(), min_length=1)  # missing where an app trains
    labels: tuple[str, ...] = Field(default=(), min_length=1)
    scale: float = Field(default=1 / 255, gt=0)
    model: Annotated[str, AfterValidator(checked_name)] = "mlp"
    model_set: Mapping[str, Any] = Field(default_factory=dict)  # parameters of the model
    head: str = ""  # where one module is cut: the name of its head
    dtype: Literal["float32", "int64"] = "float32"  # what the model reads: numbers (or scaled bytes), or tokens
    layout: Mapping[str, tuple[Annotated[int, Field(ge=0)], ...]] = Field(default_factory=dict)
    files: Mapping[str, _Sha256] = Field(default_factory=dict)
    frozen: Literal[""] | _Sha256 = ""
    columns: tuple[str, ...] = ()
    types: tuple[ColumnType, ...] = ()  # of the columns; empty: not agreed
    kind: TaskName = "classification"
    edges: tuple[float, ...] = ()

    @property
    def shares(self) -> int:
        """How many proportions a member publishes."""
        return len(self.edges) + 1 if self.kind == "regression" else len(self.labels)

    @property
    def outputs(self) -> int:
        """How many numbers the model computes for one input."""
        return len(self.labels)

    @property
    def is_own_code(self) -> bool:
        """Whether the model is MODULE:FUNCTION, code that every site must have."""
        return self.model not in MODELS

    def stable(self) -> dict[str, Any]:
        """The fields that identify the task, as plain data."""
        found = self.model_dump(mode="json")
        return {key: value for key, value in found.items() if key not in NEUTRAL_TASK or value != NEUTRAL_TASK[key]}


class Continues(BaseModel):
    """The earlier ring whose state the members take over, and after which of its rounds.

    It must be the same ring but for the members' certificates and addresses: everything that determines the training is
    unchanged, so what was learnt stays valid.
    """

    model_config = _STRICT

    ring: _Sha256  # digest of the earlier ring file
    round: int = Field(ge=1)


class Ring(BaseModel):
    """A federation as its members agreed on it; the order of `members` is the given order of the ring."""

    model_config = _STRICT

    federation: str = Field(min_length=1, max_length=200)
    method: str = RING_METHOD
    rounds: int = Field(10, ge=1, le=1_000_000)
    seed: int = Field(0, ge=0)
    preset: Preset = "recommended"
    proportions: Literal["plain", "noisy", "none"] = (
        "plain"  # what members publish about their classes to order the ring
    )
    epsilon: float = Field(1.0, gt=0)  # of the noise, where proportions are noisy
    wire: Wire = "float32"  # how extractors are encoded in messages; a site may choose another for its own
    patience: float = Field(60.0, gt=0)  # seconds of silence after which a neighbour is lost
    gathering: float = Field(600.0, gt=0)  # seconds within which all members must have appeared
    stalled: float = Field(3600.0, gt=0)  # seconds after which a member's training counts as hanging
    insiders: int = Field(0, ge=0)  # members that may do anything without harm; where it is not said, 1 of 4 or more
    quorum: int = Field(0, ge=0)  # members without which the ring pauses; 0: as few as agree safely, and never less
    summary: Sharing = "none"  # what each site may choose to tell all members about its results, at the most
    set: Mapping[str, Any] = Field(default_factory=dict)
    task: Task = Field(default_factory=Task)
    flower: FlowerApp | None = None  # what trains in place of the task's model
    continues: Continues | None = None
    members: tuple[Site, ...] = Field(min_length=2)

    @model_validator(mode="before")
    @classmethod
    def _bears_one_insider(cls, values: Any) -> Any:
        """A ring of four or more bears one, unless its file says otherwise."""
        if isinstance(values, dict) and "insiders" not in values:
            members = values.get("members")
            return values | {"insiders": int(isinstance(members, list | tuple) and len(members) >= 4)}
        return values

    @model_validator(mode="after")
    def _is_robust(self) -> "Ring":
        """A ring that bears insiders combines robustly, unless its file names another method."""
        if self.insiders and "method" not in self.model_fields_set:
            settings = dict(self.set)
            if self.insiders > 1:
                settings.setdefault("byzantine", self.insiders)
            object.__setattr__(self, "method", ROBUST_METHOD)  # the model is frozen from here on
            object.__setattr__(self, "set", settings)
        return self

    @property
    def row(self) -> Method:
        """The method's row."""
        return lookup(self.method)

    @property
    def hyper(self) -> Hyper:
        """The method's numbers."""
        return hyper_for(self.method, self.preset, self.set)

    @property
    def standardise(self) -> bool:
        """Whether each site standardises its inputs by its own training data."""
        return split_for(self.preset, self.set).standardise == "per-client"

    @property
    def digest(self) -> bytes:
        """(32,) SHA-256 of what was agreed; spacing and comments of the file do not matter."""
        agreed = self.model_dump(mode="json", exclude=self.absent)
        agreed["task"] = self.task.stable()
        return hashlib.sha256(json.dumps(agreed, sort_keys=True).encode()).digest()

    @property
    def absent(self) -> dict[str, bool]:
        """Optional parts that this ring file lacks; they are left out of its digest, as if they did not exist."""
        lacking = {name: True for name in ("flower", "continues") if getattr(self, name) is None}
        neutral = {"insiders": not self.insiders, "summary": self.summary == "none"}
        return lacking | {name: True for name, absent in neutral.items() if absent}

    @property
    def names(self) -> tuple[str, ...]:
        """Members' names; a member's place here is its number."""
        return tuple(member.name for member in self.members)

    @property
    def least(self) -> int:
        """The smallest safe quorum, ⌊(n + f) / 2⌋ + 1: any two share more members than may lie; a majority if f = 0."""
        return (len(self.members) + self.insiders) // 2 + 1

    @property
    def needed(self) -> int:
        """Members that must be present: the smallest safe quorum, or the one in the file if that is larger."""
        return max(self.quorum, self.least)

    def place(self, identity: Identity) -> int:
        """The number of the member whose certificate this is."""
        mine = canonical(identity.certificate).decode()
        for number, member in enumerate(self.members):
            if member.certificate == mine:
                return number
        raise BadInput(
            "this site's certificate is not in the ring file; send your site.toml again and ask for a new ring file, "
            "or pass the right --identity"
        )


def read_ring(path: Path) -> Ring:
    """A ring file, checked."""
    return checked(_parsed("ring file", path))


def read_site(path: Path) -> Site:
    """What `firma init` wrote for the others."""
    try:
        return Site.model_validate(_parsed("member", path))
    except ValidationError as error:
        raise BadInput(f"member {str(path)!r}: {sentence(error)}") from None


def _parsed(what: str, path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadInput(f"{what} {str(path)!r}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:  # bad TOML, bad UTF-8, a number of thousands of digits, deep nesting
        raise BadInput(f"{what} {str(path)!r}: not valid TOML ({error})") from None


def checked(values: Mapping[str, Any]) -> Ring:
    """A ring from plain data; every mistake is one sentence."""
    if "drift" in values:
        raise BadInput(
            f"ring file: drift = {values['drift']!r}: the data of real members are their own and change by themselves; "
            "remove it, or simulate drift with firma run --drift"
        )
    try:
        ring = Ring.model_validate(dict(values))
    except ValidationError as error:
        raise BadInput(f"ring file: {sentence(error)}") from None
    check_ring(ring)
    if ring.continues is not None and ring.continues.round >= ring.rounds:
        raise BadInput(
            f"ring file: continues.round = {ring.continues.round}: must be less than rounds = {ring.rounds}; nothing "
            "would be left to train"
        )
    return ring


def renewed(old: Ring, sites: Sequence[Site], done: int) -> Ring:
    """The same ring after `done` rounds, with new certificates or addresses of some members."""
    new = {site.name: site for site in sites}
    unknown = [name for name in new if name not in old.names]
    if unknown:
        raise BadInput(
            f"--renews: {unknown[0]} is not a member of {old.federation}; another set of members needs a new ring file "
            "and starts from round 1, see firma join --begin-with"
        )
    members = [new.get(site.name, site).model_dump() for site in old.members]
    either = "flower" if old.flower is None else "task"  # a ring file has one of them
    values = old.model_dump(mode="json", exclude={"members", "continues", either})
    return checked(values | {"members": members, "continues": {"ring": old.digest.hex(), "round": done}})


def check_continues(ring: Ring, old: Ring) -> None:
    """Refuse to take over the state of a ring that was agreed on otherwise than in certificates and addresses."""
    assert ring.continues is not None  # the caller has asked
    if old.digest.hex() != ring.continues.ring:
        raise BadInput(
            f"the ring file continues the ring with digest {ring.continues.ring[:16]}…, but the state folder is of "
            f"{old.digest.hex()[:16]}…; pass the right --begin-with"
        )
    facts = [
        each.model_dump(mode="json", exclude={"members", "continues"}) | {"members": list(each.names)}
        for each in (old, ring)
    ]
    differing = [name for name in facts[0] if facts[0][name] != facts[1][name]]
    if differing:
        raise BadInput(
            f"the ring file continues an earlier one, but differs in {', '.join(differing)}; only certificates and "
            "addresses may differ: write it with firma ring-file --renews"
        )


def site_toml(site: Site) -> str:
    """A member as TOML, to be sent to the others."""
    return f"name = {_text(site.name)}\naddress = {_text(site.address)}\ncertificate = '''\n{site.certificate}'''\n"


def ring_toml(ring: Ring) -> str:
    """The ring as TOML; `read_ring` of it is the same ring."""
    values = ring.model_dump(mode="json", exclude={"members", "task", "set", "flower", "continues"})
    if ring.summary == "none":  # as if it did not exist, so that versions without it can read the file
        del values["summary"]
    lines = [f"{key} = {_text(value)}" for key, value in values.items()]
    tables: dict[str, Mapping[str, Any]] = {"set": dict(ring.set)}
    if ring.flower is None:
        task = ring.task.stable()
        inner = {f"task.{key}": task.pop(key) for key in ("model_set", "layout", "files") if key in task}
        tables |= {"task": task, **inner}
    else:
        flower = ring.flower.model_dump(mode="json")
        inner = {f"flower.{key}": flower.pop(key) for key, value in list(flower.items()) if isinstance(value, dict)}
        tables |= {"flower": flower, **inner}
    if ring.continues is not None:
        tables |= {"continues": ring.continues.model_dump(mode="json")}
    for title, table in tables.items():
        lines += ["", f"[{title}]", *(f"{_key(key)} = {_text(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n" + "".join(f"\n[[members]]\n{site_toml(member)}" for member in ring.members)


def _key(name: str) -> str:
    """A TOML key, quoted where it contains more than letters, digits, _ and -."""
    return name if name.isascii() and name.replace("_", "").replace("-", "").isalnum() else _text(name)


def _text(value: object) -> str:
    """A TOML value: JSON spells strings, numbers, truths and lists of them the same, but for one character."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
