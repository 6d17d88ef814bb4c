"""Keys, certificates and ring files: what is made is sound, what is wrong is said in one sentence."""

import stat

import pytest

from firma.errors import BadInput
from firma.peer.identity import fingerprint, load_identity, make_identity
from firma.peer.ring_file import Ring, Site, checked, read_ring, read_site, ring_toml, site_toml

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
        ({"set": {"reorder_every": 3}}, "real members order the ring when it forms"),
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
