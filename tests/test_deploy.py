"""deploy/: the container, the rehearsal with compose and the Kubernetes example, as far as they run without either."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from firma.cli import command as command_of
from tests.peer.conftest import free_ports
from tests.processes import running

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
COMPOSE = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SITES = ("north", "east", "south")
KUBERNETES = {
    path.name: list(yaml.safe_load_all(path.read_text())) for path in sorted((DEPLOY / "kubernetes").glob("*.yaml"))
}
SITE = {each["kind"]: each for each in KUBERNETES["site.yaml"]}
HADOLINT = Path(sys.executable).parent / "hadolint"


def lint(path):
    return subprocess.run([HADOLINT, path], capture_output=True, text=True, check=False)


@pytest.mark.skipif(not HADOLINT.exists(), reason="pip install 'firma[dev]'")
def test_the_dockerfile_has_no_findings(tmp_path):
    done = lint(DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")
    (tmp_path / "Dockerfile").write_text("FROM python\nRUN cd /tmp && pip install torch\n")
    assert "DL3006" in lint(tmp_path / "Dockerfile").stdout  # it would find something


def test_the_dockerfile_copies_what_exists_and_is_sent():
    sent = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    names = [name for line in copied for name in line.split()]
    assert {"src", "constraints.txt", "pyproject.toml"} <= set(names)
    for name in names:
        assert (ROOT / name).exists() and name in sent, name


def test_every_file_names_this_version():
    for path in (DEPLOY / "Dockerfile", DEPLOY / "compose.yaml", *(DEPLOY / "kubernetes").glob("*.yaml")):
        found = set(re.findall(r"firma:([0-9][\w.]*)", path.read_text()))
        assert found == {VERSION}, path.name


def options_exist(words):
    """The command exists and has these options."""
    known = {option for each in command_of(words[0]).params for option in (*each.opts, *each.secondary_opts)}
    return {word for word in words if word.startswith("--")} <= known


def test_compose_is_complete():
    services = COMPOSE["services"]
    assert set(services) == {"setup", *SITES}
    for name, service in services.items():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in COMPOSE["volumes"] or (DEPLOY / source).exists(), volume
        assert set(service.get("depends_on", ())) <= set(services)
        assert set(service.get("networks", ())) <= set(COMPOSE["networks"])
        if name != "setup":
            assert options_exist(service["command"])
            assert service["working_dir"] == f"/site/{name}" and service["hostname"] == name
    build = services["setup"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).exists()
    said = (DEPLOY / "rehearsal.sh").read_text()
    assert all(f"{name}:7443" in said for name in SITES)  # the addresses that the containers have


@pytest.mark.slow
def test_the_rehearsal_trains_three_sites(tmp_path):
    """What setup and the three services of compose run, as processes on this machine; kernels are compiled anew."""
    wrapper = tmp_path / "bin" / "firma"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m firma "$@"\n')
    wrapper.chmod(0o755)
    addresses = [f"127.0.0.1:{port}" for port in free_ports(3)]
    folder = tmp_path / "site"
    folder.mkdir()
    environment = {"PATH": f"{wrapper.parent}:/usr/bin:/bin", "HOME": str(tmp_path)} | environment_of_python()
    setup = [shutil.which("bash"), DEPLOY / "rehearsal.sh", folder, *addresses]
    done = subprocess.run(setup, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    again = subprocess.run(setup, env=environment, capture_output=True, text=True, check=False)
    assert "already exists" in again.stdout  # a second `up` keeps the keys
    started = []
    for name, address in zip(SITES, addresses, strict=True):
        words = [address if word == "0.0.0.0:7443" else word for word in COMPOSE["services"][name]["command"]]
        started.append(
            running(
                [wrapper, *words], cwd=folder / name, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        )
    processes = [each.__enter__() for each in started]
    try:
        said = [process.communicate(timeout=900) for process in processes]
    finally:
        for each in started:
            each.__exit__(None, None, None)
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert all("done: accuracy" in out for out, _ in said)


def environment_of_python():
    return {name: os.environ[name] for name in ("PYTHONPATH", "NUMBA_CACHE_DIR") if name in os.environ}


@pytest.mark.skipif(find_spec("kubernetes_validate") is None, reason="pip install 'firma[dev]'")
@pytest.mark.filterwarnings("ignore")
def test_kubernetes_accepts_the_manifests():
    import kubernetes_validate

    version = kubernetes_validate.latest_version()
    for documents in KUBERNETES.values():
        for document in documents:
            kubernetes_validate.validate(document, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(SITE["Job"] | {"spec": {"replicas": 1}}, version, strict=True)


def pods():
    return {
        "Job": (SITE["Job"]["spec"]["template"]["metadata"], SITE["Job"]["spec"]["template"]["spec"]),
        "shell": (KUBERNETES["shell.yaml"][0]["metadata"], KUBERNETES["shell.yaml"][0]["spec"]),
    }


def test_the_manifests_fit_together():
    claims = {each["metadata"]["name"] for each in KUBERNETES["site.yaml"] if each["kind"] == "PersistentVolumeClaim"}
    readme = (DEPLOY / "README.md").read_text()
    for metadata, pod in pods().values():
        (container,) = pod["containers"]
        assert SITE["Service"]["spec"]["selector"].items() <= metadata["labels"].items()
        assert {each["name"] for each in container["volumeMounts"]} == {each["name"] for each in pod["volumes"]}
        for volume in pod["volumes"]:
            claim = volume.get("persistentVolumeClaim", {}).get("claimName")
            assert claim is None or claim in claims or f"`{claim}`" in readme, claim
        assert pod["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
        user = str(pod["securityContext"]["runAsUser"])
        assert f"USER {user}:{user}" in (DEPLOY / "Dockerfile").read_text()
    (container,) = pods()["Job"][1]["containers"]
    assert options_exist(container["args"])
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    (published,) = SITE["Service"]["spec"]["ports"]
    assert ports[published["targetPort"]] == published["port"] == 7443
    assert f"0.0.0.0:{ports['ring']}" in container["args"]
