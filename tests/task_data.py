"""Rows with one number to predict, or with several labels, in arrays and in tables; and a run of one client on them."""

import numpy as np

import firma

RNG = np.random.default_rng(3)
X = RNG.normal(size=(240, 5)).astype(np.float32)
PRICE = (2 * X[:, 0] - X[:, 1] + 0.05 * RNG.normal(size=240)).astype(np.float32)
TAGS = np.stack([X[:, 0] > 0, X[:, 1] > 0.8, X[:, 2] + X[:, 0] > 0], axis=1).astype(np.int64)
SMALL = {"hidden": 16, "embedding": 8, "extractor_epochs": 2}


def table(path, header, *columns):
    """A CSV file of these columns; its path."""
    path.write_text(header + "\n" + "".join(",".join(map(str, row)) + "\n" for row in zip(*columns, strict=True)))
    return str(path)


def flat_run(task, y, model, **options):
    """Two rounds of one client, which trains and is tested on all rows."""
    return firma.run(
        (X, y, X, y), "iid", "local", clients=1, rounds=2, task=task, model=model, seed=4,
        settings={"rate": 0.05, "epochs": 3, "batch": 32}, **options,
    )  # fmt: skip
