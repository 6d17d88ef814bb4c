"""The model, the data of one partition, and plain training loops."""

from functools import cache

import torch
from datasets import Dataset
from flwr_datasets.partitioner import DirichletPartitioner
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    """A small convolutional network for images of 8 × 8 pixels."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 8, 3, padding=1)
        self.hidden = nn.Linear(8 * 4 * 4, 32)
        self.output = nn.Linear(32, 10)

    def forward(self, images):
        features = torch.max_pool2d(torch.relu(self.conv(images)), 2)
        return self.output(torch.relu(self.hidden(features.flatten(1))))


@cache
def partitioner(num_partitions, alpha):
    """Digits that come with scikit-learn, split by flwr-datasets: a Dirichlet distribution over labels."""
    digits = load_digits()
    split = DirichletPartitioner(num_partitions, partition_by="label", alpha=alpha, min_partition_size=20, seed=42)
    split.dataset = Dataset.from_dict({"image": digits.images.tolist(), "label": digits.target.tolist()})
    return split


@cache
def tensors(partition_id, num_partitions, alpha):
    """The samples of one partition: four fifths to train, one fifth to test."""
    own = partitioner(num_partitions, alpha).load_partition(partition_id).train_test_split(test_size=0.2, seed=42)
    parts = (own[name].with_format("torch")[:] for name in ("train", "test"))
    return [TensorDataset(part["image"].unsqueeze(1) / 16, part["label"]) for part in parts]


def load_data(partition_id, num_partitions, batch_size, alpha):
    """Loaders of one partition."""
    train_data, test_data = tensors(partition_id, num_partitions, alpha)
    return DataLoader(train_data, batch_size, shuffle=True), DataLoader(test_data, batch_size)


def train(net, loader, epochs, lr):
    """Plain SGD; returns the mean loss of the last epoch and the accuracy on the training data."""
    optimiser = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    net.train()
    for _ in range(epochs):
        total = 0.0
        for images, labels in loader:
            optimiser.zero_grad()
            loss = cross_entropy(net(images), labels)
            loss.backward()
            optimiser.step()
            total += loss.item() * len(labels)
    return total / len(loader.dataset), test(net, loader)[1]


@torch.no_grad()
def test(net, loader):
    """Mean loss and accuracy."""
    net.eval()
    loss, right = 0.0, 0
    for images, labels in loader:
        logits = net(images)
        loss += cross_entropy(logits, labels, reduction="sum").item()
        right += int((logits.argmax(1) == labels).sum())
    return loss / len(loader.dataset), right / len(loader.dataset)
