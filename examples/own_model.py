"""Your own convolutional extractor on digits, trained by each private-head ring method and alone."""

from torch import nn

import firma


def build() -> tuple[nn.Module, nn.Module]:
    extractor = nn.Sequential(
        nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(),
    )  # fmt: skip
    return extractor, nn.Linear(64, 10)


for method in ("local", "fibfl", "fibfl+", "fibfl++"):
    result = firma.run(
        "digits", "dir-0.5", method, rounds=3, model=build, settings={"rate": 0.001, "extractor_epochs": 2}
    )
    print(f"{method:8} mean {result.metrics['mean_accuracy']:.3f}  worst {result.metrics['worst_client']:.3f}")
