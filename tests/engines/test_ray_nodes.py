"""A node that dies: its clients go on elsewhere, from their last round."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("ray")
from firma.engines.actor_pool import ActorPool
from firma.engines.ray import RayFederation
from firma.engines.ray_cluster import answers, connected, nodes, ray
from firma.engines.simulation import Simulation
from tests.processes import running, wait_until

TWO_NODES = """
import sys
from firma.engines.ray_cluster import ray
ray()
from ray.cluster_utils import Cluster
quick = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_failure_threshold": 3}
size = {"num_cpus": 1, "object_store_memory": 150_000_000}
cluster = Cluster(initialize_head=True, head_node_args=size | {"_system_config": quick, "include_dashboard": False})
node = cluster.add_node(**size)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.remove_node(node, allow_graceful=False)
print("gone", flush=True)
sys.stdin.read()
cluster.shutdown()
"""


def test_clients_of_a_dead_node_go_on_elsewhere(make_federation):
    federation = make_federation("fibfl++", 5, rounds=6)
    outcomes = []
    command = [sys.executable, "-c", TWO_NODES]
    with running(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            with connected(process.stdout.readline().strip()), ActorPool() as pool:
                before = {post.node for post in pool.slots}
                assert len(before) == 2
                (far,) = (post for post in pool.slots if post.node != ray().get_runtime_context().get_node_id())
                worker = Path(f"/proc/{answers(far.actor.ready.remote())}")
                engine = RayFederation(federation, pool)
                for outcome in engine.rounds():
                    outcomes.append(outcome)
                    if outcome.number == 2:
                        process.stdin.write("\n")
                        process.stdin.flush()
                        assert process.stdout.readline() == "gone\n"
                        wait_until(lambda: not worker.exists(), 60, "the worker sees that its node is gone")
                after = {post.node for post in pool.slots}
                assert len(after) == 1
                assert after < before
                assert after == set(nodes())
        finally:
            process.stdin.close()
            process.wait(timeout=60)
    simulation = Simulation(federation)
    np.testing.assert_array_equal(
        [outcome.accuracies for outcome in outcomes], [outcome.accuracies for outcome in simulation.rounds()]
    )
    torch.testing.assert_close(engine.parameters, simulation.parameters, rtol=1e-4, atol=1e-6)
