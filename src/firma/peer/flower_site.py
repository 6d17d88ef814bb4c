"""The Flower app that a ring file names, at one site."""

from collections.abc import Mapping

from firma.errors import BadInput
from firma.flower.description import FlowerApp, Scalar
from firma.flower.trainer import backend, loaded, templates, unknown_data
from firma.peer.ring_file import Ring
from firma.peer.runtime.local_training import Learner


def check_consent(app: FlowerApp, allowed: str | None) -> None:
    """Refuse to run an app that a ring file names unless this site has named it too: a ring file comes from others."""
    if allowed != app.app:
        given = f", not {allowed!r}" if allowed is not None else ""
        raise BadInput(
            f"the ring file asks this site to run the Flower app {app.app}{given}; if you trust it, "
            f"pass --app {app.app}"
        )


def learner(ring: Ring, me: int, node_config: Mapping[str, Scalar]) -> Learner:
    """What this site trains; its data are loaded by the app when it is called first."""
    assert ring.flower is not None  # the caller has asked

    def node(client: int) -> Mapping[str, Scalar]:
        return {"partition-id": client, "num-partitions": len(ring.members)} | dict(node_config)

    app = loaded(ring.flower, None, ring.flower, node)
    (made,) = templates(app, ring.seed, [me if ring.hyper.initial == "per-client" else 0])
    return Learner(made.model, unknown_data(), backend(app, made))
