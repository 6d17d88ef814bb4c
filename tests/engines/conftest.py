"""One small Ray cluster for all tests, in processes of its own, and workers on it."""

import faulthandler
import os
import secrets
import subprocess
import sys

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key

from tests.processes import running

# A token for the clusters of these tests alone; Ray reads it when it is imported.
os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}

START = """
import sys
from firma.engines.ray_cluster import ray
ray().init("local", num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="error",
           object_store_memory=200_000_000)
print(ray().get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module", autouse=True)
def crashes_are_told(request):
    """When it leaves, Ray takes the signal handlers with it that say where a process crashed: put them back."""
    yield
    faulthandler.disable()
    faulthandler.enable(request.config.stash[fault_handler_stderr_fd_key])


@pytest.fixture(scope="session")
def address():
    """A running cluster."""
    pytest.importorskip("ray")
    command = [sys.executable, "-c", START]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process.stdout.readline().strip()
        process.stdin.close()
        process.wait(timeout=60)


@pytest.fixture(scope="module")
def cluster(address):
    """This process as a member of it."""
    from firma.engines.ray_cluster import connected

    with connected(address):
        yield


@pytest.fixture(scope="module")
def pools(cluster):
    """Crews of one and of three processes."""
    from firma.engines.actor_pool import ActorPool

    with ActorPool(workers=1) as one, ActorPool(workers=4, count=3) as three:
        yield {1: one, 3: three}
