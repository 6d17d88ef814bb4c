"""The Flower app that a ring file names, at one site: its training, and its arrays after it."""

from collections.abc import Mapping
from pathlib import Path

from firma.errors import BadInput
from firma.flower.app_code import check_code, importable
from firma.flower.description import FlowerApp, Scalar
from firma.flower.named_arrays import Array, Template, unpacked
from firma.flower.trainer import LoadedApp, backend, loaded, templates, unknown_data
from firma.peer.ring_file import Ring, read_ring
from firma.peer.runtime import checkpoint
from firma.peer.runtime.local_training import Learner
from firma.peer.runtime.node import RING_COPY


def check_app(app: FlowerApp, allowed: str | None) -> None:
    """Refuse to run an app that a ring file names unless this site has named it too: a ring file comes from others."""
    if allowed != app.app:
        given = f", not {allowed!r}" if allowed is not None else ""
        raise BadInput(
            f"the ring file asks this site to run the Flower app {app.app}{given}; if you trust it, "
            f"pass --app {app.app}"
        )


def learner(ring: Ring, me: int, node_config: Mapping[str, Scalar]) -> Learner:
    """What this site trains; its data are loaded by the app when it is called first."""
    app, made = _started(ring, me, node_config)
    return Learner(made.model, unknown_data(), backend(app, made))


def trained(state: str | Path) -> dict[str, Array]:
    """This site's arrays after the last round in its state folder, head included, under the app's names."""
    folder = Path(state)
    if not checkpoint.any_in(folder):
        raise BadInput(f"state folder {str(folder)!r} holds no checkpoint")
    agreed = read_ring(folder / RING_COPY)
    if agreed.flower is None:
        raise BadInput(
            f"state folder {str(folder)!r} is of a ring without a Flower app; use firma.load({str(folder)!r})"
        )
    saved = checkpoint.read(folder, checkpoint.latest(folder), agreed.digest)
    return unpacked(_started(agreed, 0, {})[1].specs, saved.tensors["parameters"], saved.tensors)


def _started(ring: Ring, me: int, node_config: Mapping[str, Scalar]) -> tuple[LoadedApp, Template]:
    assert ring.flower is not None  # the caller has asked

    def node(client: int) -> Mapping[str, Scalar]:
        return {"partition-id": client, "num-partitions": len(ring.members)} | dict(node_config)

    importable(Path.cwd())
    check_code(ring.flower.app, ring.flower.files)
    app = loaded(ring.flower, None, ring.flower, node)
    (made,) = templates(app, ring.seed, [me if ring.hyper.initial == "per-client" else 0])
    return app, made
