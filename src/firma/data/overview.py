"""Who would hold what, before anyone trains."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firma.data.dataset import Dataset
from firma.data.partition import class_counts, deal, default_scenario
from firma.data.recipes import Indices
from firma.hyper import split_for


@dataclass(frozen=True, eq=False)
class Overview:
    """A dealt data set in numbers: `train` and `test` are (N, C) samples of each class, `names` the N clients."""

    dataset: str
    scenario: str
    preset: str
    names: tuple[str, ...]
    labels: tuple[str, ...]
    train: Indices
    test: Indices
    dropped: tuple[str, ...]
    angles: tuple[float, ...]

    def as_dict(self) -> dict[str, Any]:
        """The overview as plain data, ready for JSON."""
        rows = [
            {"client": name, "train": int(train.sum()), "test": int(test.sum()),
             "train_classes": train.tolist(), "test_classes": test.tolist()}
            | ({"degrees": self.angles[place]} if self.angles else {})
            for place, (name, train, test) in enumerate(zip(self.names, self.train, self.test, strict=True))
        ]  # fmt: skip
        return {
            "dataset": self.dataset,
            "scenario": self.scenario,
            "preset": self.preset,
            "classes": list(self.labels),
            "clients": rows,
            "dropped": list(self.dropped),
        }


def overview(
    dataset: Dataset, scenario: str | None, clients: int | None, preset: str, settings: Mapping[str, Any], seed: int
) -> Overview:
    """Deal a data set as a run would, and count."""
    chosen = scenario or default_scenario(dataset)
    count = clients or dataset.clients
    partition = deal(dataset, chosen, count, split_for(preset, settings), seed)
    everyone = dataset.client_names if chosen == "natural" else tuple(str(client) for client in range(count))
    kept = [client for client in range(count) if client not in set(partition.dropped)]
    return Overview(
        dataset=dataset.name,
        scenario=chosen,
        preset=preset,
        names=tuple(everyone[client] for client in kept),
        labels=dataset.labels or tuple(str(label) for label in range(dataset.classes)),
        train=class_counts(dataset.y_train, partition.train, dataset.classes),
        test=class_counts(dataset.y_test, partition.test, dataset.classes),
        dropped=tuple(everyone[client] for client in partition.dropped),
        angles=partition.angles,
    )
