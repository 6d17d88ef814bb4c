"""Keys, certificates and ring files: what is made is sound, what is wrong is said in one sentence."""

import json
import shutil
import stat
import subprocess
import sys
from contextlib import ExitStack

import pytest

from firma.cli.peer_options import passphrase_from
from firma.errors import BadInput
from firma.peer.identity import fingerprint, fingerprint_bytes, load_identity, make_identity
from firma.peer.ring_file import Ring, Site, checked, read_ring, read_site, ring_toml, site_toml
from firma.peer.spoken import WORDS, spoken
from tests.processes import running

from .conftest import accept_all

TASK = {"shape": [8, 8], "labels": list("0123456789"), "scale": 1 / 16}


@pytest.fixture
def sites(tmp_path):
    made = [make_identity(tmp_path / name, name) for name in ("ant", "bee", "cat")]
    return [
        {"name": name, "address": f"127.0.0.1:{7000 + n}", "certificate": each.certificate.decode()}
        for n, (name, each) in enumerate(zip(("ant", "bee", "cat"), made, strict=True))
    ]


def ring(sites, **changes) -> Ring:
    return checked({"federation": "test", "task": TASK, "members": sites} | changes)


def test_a_key_is_private_and_kept(tmp_path):
    made = make_identity(tmp_path / "me", "site-a")
    assert load_identity(tmp_path / "me") == made
    assert stat.S_IMODE((tmp_path / "me" / "key.pem").stat().st_mode) == 0o600
    assert len(fingerprint(made.certificate)) == 95
    assert b"PRIVATE" not in repr(made).encode()
    with pytest.raises(BadInput, match="already holds a key"):
        make_identity(tmp_path / "me", "site-a")


def test_an_unsafe_or_foreign_key_is_refused(tmp_path):
    make_identity(tmp_path / "a", "a")
    make_identity(tmp_path / "b", "b")
    (tmp_path / "a" / "key.pem").chmod(0o644)
    with pytest.raises(BadInput, match="chmod 600"):
        load_identity(tmp_path / "a")
    (tmp_path / "a" / "key.pem").chmod(0o600)
    (tmp_path / "a" / "key.pem").write_bytes((tmp_path / "b" / "key.pem").read_bytes())
    with pytest.raises(BadInput, match="does not belong"):
        load_identity(tmp_path / "a")
    with pytest.raises(BadInput, match="firma init"):
        load_identity(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["", "Hospital", "a b", "-a", "a/b", "a" * 64])
def test_names_fit_certificates(tmp_path, name):
    with pytest.raises(BadInput, match="name"):
        make_identity(tmp_path, name)


def test_a_ring_file_survives_writing_and_its_digest_ignores_spelling(sites, tmp_path):
    made = ring(sites, set={"rate": 0.001}, proportions="noisy")
    path = tmp_path / "ring.toml"
    path.write_text("# a comment\n" + ring_toml(made))
    assert read_ring(path) == made
    assert read_ring(path).digest == made.digest
    assert ring(sites, seed=1).digest != made.digest
    member = tmp_path / "site.toml"
    member.write_text(site_toml(made.members[1]))
    assert read_site(member) == made.members[1]
    assert made.place(load_identity(tmp_path / "bee")) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"method": "fedavg"}, "shares extractors only"),
        ({"method": "rdfl"}, "shares extractors only"),
        ({"method": "lg-fedavg"}, "shares extractors only"),
        ({"method": "fedbn:topology=all-reduce"}, "shares extractors only"),
        ({"method": "fedper"}, "only; without a server the same average is 'fedper:topology=all-reduce'"),
        ({"method": "nonsense"}, "unknown"),
        ({"set": {"warmup_shares": "model"}}, "would send heads"),
        ({"method": "frame", "proportions": "none"}, "sends exact class shares"),
        ({"set": {"reorder_every": 3}}, "real members order the ring when it forms"),
        (
            {"method": "fednova:topology=all-reduce,shares=extractor", "set": {"initial": "per-client"}},
            "initial = 'per-client' cannot be combined with algorithm normalised steps",
        ),
        ({"set": {"reorder_when": 0.0}}, "real members order the ring when it forms"),
        ({"drift": "label-shift"}, "data of real members are their own"),
        ({"set": {"nonsense": 1}}, "unknown"),
        ({"rounds": 0}, "rounds"),
        ({"colour": "red"}, "colour"),
        ({"members": []}, "members"),
        ({"task": TASK | {"labels": ["1", "1"]}}, "must not repeat"),
    ],
)
def test_mistakes_are_one_sentence(sites, changes, says):
    with pytest.raises(BadInput, match=says) as error:
        ring(sites, **changes)
    assert "\n" not in str(error.value)


def test_members_are_themselves(sites, tmp_path):
    with pytest.raises(BadInput, match="two members have the certificate"):
        ring([sites[0], sites[1], sites[2] | {"certificate": sites[0]["certificate"]}])
    with pytest.raises(BadInput, match="for another name"):
        ring([sites[0] | {"certificate": sites[1]["certificate"]}, sites[2]])
    with pytest.raises(BadInput, match="two members have the address"):
        ring([sites[0], sites[1] | {"address": sites[0]["address"]}])
    with pytest.raises(BadInput, match="HOST:PORT"):
        ring([sites[0] | {"address": "nowhere"}, sites[1]])
    stranger = make_identity(tmp_path / "dog", "dog")
    with pytest.raises(BadInput, match="not in the ring file"):
        ring(sites).place(stranger)
    assert Site.model_validate(sites[0]).name == "ant"


def test_digests_can_be_read_out():
    assert len(set(WORDS)) == 256
    assert len({word[:3] for word in WORDS}) == 256
    assert all(word.isascii() and word.isalpha() and word.islower() for word in WORDS)
    assert spoken(bytes(range(32))) == ", ".join(" ".join(WORDS[n : n + 4]) for n in (0, 4, 8))
    assert spoken(bytes([255] * 32)).split(", ")[0] == "zipper zipper zipper zipper"


def test_a_ring_file_is_shown_in_plain_words(command, tmp_path):
    for number, name in enumerate(("ant", "bee")):
        command("init", name, f"127.0.0.1:{7001 + number}", "--identity", tmp_path / name)
    members = [word for name in ("ant", "bee") for word in ("--member", tmp_path / name / "site.toml")]
    task = ["--federation", "trial", "--shape", "8x8", "--labels", "healthy,ill", "--set", "rate=0.0031"]
    path = tmp_path / "ring.toml"
    assert command("ring-file", path, *members, *task, "--rounds", "7", "--patience", "33")[0] == 0
    code, out, _ = command("ring-file", path)
    ring = read_ring(path)
    assert code == 0
    for says in (
        "method: fibfl++; extractors go to the two neighbours on the ring; in the first",
        "data and heads never leave a site",
        "rounds: 7, from seed 0",
        "model: mlp, hidden = ",
        "inputs: shape 8x8",
        "labels: 2: healthy, ill",
        "changed: rate=0.0031",
        "rate=0.0031, ",
        "the exact shares of its classes",
        "quorum: 2 of 2 members",
        "insiders: none tolerated",
        "patience: 33 s; whoever is not heard",
        "within 600 s",
        f"in words, for the telephone: {spoken(ring.digest)}",
        *(fingerprint(member.certificate.encode()) for member in ring.members),
        *(spoken(fingerprint_bytes(member.certificate.encode())) for member in ring.members),
    ):
        assert says in out, out
    document = json.loads(command("ring-file", path, "--json")[1])
    assert document["numbers"]["rate"] == 0.0031
    assert document["task"]["labels"] == ["healthy", "ill"]
    assert (document["digest"], document["words"]) == (ring.digest.hex(), spoken(ring.digest))


@pytest.mark.parametrize("words", [("--rounds", "30"), ("--set", "rate=1"), ("--labels", "a,b"), ("--quorum", "2")])
def test_an_option_that_would_change_a_ring_file_is_not_ignored(command, tmp_path, sites, words):
    path = tmp_path / "ring.toml"
    path.write_text(ring_toml(ring(sites)))
    code, out, err = command("ring-file", path, *words)
    assert (code, out, f"{words[0]} requires --member" in err) == (2, "", True), err


def test_a_key_may_be_encrypted(command, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("correct horse\n")
    words = ["init", "ant", "127.0.0.1:7001", "--identity", tmp_path / "ant"]
    code, _, err = command(*words, "--passphrase-file", secret)
    assert (code, "requires --encrypt" in err) == (2, True)
    assert command(*words, "--encrypt", "--passphrase-file", secret)[0] == 0
    stored = (tmp_path / "ant" / "key.pem").read_bytes()
    assert stored.startswith(b"-----BEGIN ENCRYPTED PRIVATE KEY-----")
    with pytest.raises(BadInput, match=r"key\.pem is encrypted; pass --passphrase-file"):
        load_identity(tmp_path / "ant")
    with pytest.raises(BadInput, match="the passphrase is wrong"):
        load_identity(tmp_path / "ant", lambda: b"wrong")
    with pytest.raises(BadInput, match="passphrase is missing: pass --passphrase-file"):
        load_identity(tmp_path / "ant", passphrase_from(None))  # no terminal to ask at
    own = load_identity(tmp_path / "ant", lambda: b"correct horse")
    assert own.key.startswith(b"-----BEGIN PRIVATE KEY-----"), "as TLS needs it, in memory"
    assert (tmp_path / "ant" / "key.pem").read_bytes() == stored


def test_a_member_with_an_encrypted_key_trains(make_ring, tmp_path):
    """The passphrase comes through a file descriptor, as a supervisor hands it over."""
    made = make_ring("fibfl", 2, 1, "iid")
    values = made.ring.model_dump(mode="json", exclude={"flower"})
    for number, name in enumerate(made.ring.names):
        shutil.rmtree(made.identity(number))
        identity = make_identity(made.identity(number), name, passphrase=b"word")
        values["members"][number]["certificate"] = identity.certificate.decode()
    made.path.write_text(ring_toml(checked(values)))
    accept_all(made, checked(values), lambda: b"word")
    (tmp_path / "word").write_text("word\n")
    with ExitStack() as processes:
        members = []
        for number in range(2):
            command = [
                sys.executable, "-m", "firma", "join", str(made.path), "--data", made.data(number), "--identity",
                str(made.identity(number)), "--state", str(made.state(number)), "--passphrase-file", "/dev/stdin",
            ]  # fmt: skip
            with (tmp_path / "word").open() as word:
                members.append(processes.enter_context(running(command, stdin=word, stdout=subprocess.DEVNULL)))
        assert [member.wait(180) for member in members] == [0, 0]
