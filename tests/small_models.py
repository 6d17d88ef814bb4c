"""Small torch models and their training: in a run, at one client, and in a plain torch loop."""

import numpy as np
import torch
from torch import nn

import firma
from firma.data.partition import deal
from firma.experiment import assemble
from firma.methods import METHODS
from firma.models.build import model_spec
from firma.schedule import Phase
from firma.settings import hyper_for, split_for
from firma.training.autograd_trainer import AutogradTrainer
from firma.training.local_step import ClientData, Job, Recipe, Sgd, batches, epoch_orders, new_client

CPU = torch.device("cpu")
PLAIN = Recipe(Sgd(0.05, 0.9))
QUICK = {"epochs": 2, "head_epochs": 1, "extractor_epochs": 2, "batch": 16}


def numbers(samples=200, features=6, classes=3):
    """Inputs whose class is the largest of the first features."""
    x = np.random.default_rng(0).normal(size=(samples, features)).astype(np.float32)
    return x, x[:, :classes].argmax(axis=1)


def seeded(build):
    """The modules that a function builds, with torch's own initial weights and seed 0."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build()


def train(model, method="fedavg", data=None, clients=3, rounds=2, scenario="iid", settings=QUICK, **options):
    """A short run of a model."""
    return firma.run(
        data or numbers(), scenario, method, clients=clients, rounds=rounds, model=model, settings=settings, **options
    )


def client_data(samples=20, features=6, classes=3):
    """The data of one client."""
    x, y = numbers(samples, features, classes)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    return ClientData(inputs, labels, inputs[:7], labels[:7])


def trained(model, data, trains="model", epochs=2, batch=8, parts=PLAIN, smallest=1):
    """A client after some epochs of local training by autograd."""
    client = new_client(0, data, model.flat(), model, parts)
    AutogradTrainer(model, CPU, smallest).train(
        client, Job(parts, (Phase(trains, epochs),), batch), np.random.default_rng(1)
    )
    return client


def by_hand(model, data, epochs=2, batch=8, smallest=1):
    """The same epochs as a plain torch loop over what requires a gradient."""
    copy = model.copy()
    orders = epoch_orders(len(data.labels), epochs, np.random.default_rng(1))
    descend(nn.Sequential(copy.extractor, copy.head), data, batches(orders, batch, smallest), 0.05, 0.9)
    return copy


def descend(whole, data, orders, rate, momentum):
    """Gradient descent with momentum, in place; torch.optim's own takes seconds to import."""
    parameters = [each for each in whole.parameters() if each.requires_grad]
    velocities = [torch.zeros_like(each) for each in parameters]
    for rows in orders:
        loss = nn.functional.cross_entropy(whole(data.inputs[rows]), data.labels[rows])
        gradients = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            for parameter, velocity, gradient in zip(parameters, velocities, gradients, strict=True):
                parameter.sub_(velocity.mul_(momentum).add_(gradient), alpha=rate)


def federation(pair, method="fibfl", clients=3, rounds=3):
    """The federation that `train` runs."""
    dataset = firma.load_dataset(numbers())
    partition = deal(dataset, "iid", clients, split_for("recommended", QUICK), 0)
    return assemble(
        dataset, partition, METHODS[method], hyper_for(method, "recommended", QUICK), rounds, 0, model_spec(pair), "cpu"
    )


def accuracies(result):
    """Test accuracies of the models as exported, in evaluation mode."""
    found = []
    for client, data in enumerate(federation((result.template.extractor, result.template.head)).data):
        model = result.model(client)
        whole = nn.Sequential(model.extractor, model.head).eval()
        with torch.no_grad():
            found.append(int((whole(data.test_inputs).argmax(1) == data.test_labels).sum()) / len(data.test_labels))
    return found


def stack(change=lambda layers: None, first=nn.Linear, container=nn.Sequential):
    """Linear layers with ReLU between them, which the compiled kernels take unless `change` does something to them."""
    layers = container(first(6, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU())
    change(layers)
    return layers, nn.Linear(6, 3)


def with_one_memory(layers):
    """Two weights are different parameters in one memory."""
    layers[2].weight.data = layers[0].weight.data


def with_same_layer(layers):
    """One layer is used twice."""
    layers[2] = layers[0]


class Tied(nn.Module):
    """An autoencoder's layer: the same matrix there and back."""

    def __init__(self):
        super().__init__()
        self.there, self.back = nn.Linear(6, 6), nn.Linear(6, 6)
        self.back.weight = self.there.weight

    def forward(self, x):
        return self.back(torch.tanh(self.there(x)))


def normed():
    """A model with batch normalisation."""
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU()), nn.Linear(12, 3)


def sharing(what):
    """The same, and the buffers that it shares."""
    extractor, head = normed()
    extractor.shared_buffers = what
    return extractor, head
