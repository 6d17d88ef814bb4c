"""The same client with Flower's older interface: a NumPyClient that a client_fn creates."""

import torch
from flwr.app import Context
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, test, train


class DigitsClient(NumPyClient):
    """Lists of arrays in, lists of arrays out."""

    def __init__(self, loaders, epochs):
        self.net = Net()
        self.train_loader, self.test_loader = loaders
        self.epochs = epochs

    def get_parameters(self, config):
        return [values.numpy() for values in self.net.state_dict().values()]

    def set_parameters(self, parameters):
        names = self.net.state_dict().keys()
        self.net.load_state_dict({name: torch.tensor(array) for name, array in zip(names, parameters, strict=True)})

    def fit(self, parameters, config):
        self.set_parameters(parameters)
        _, accuracy = train(self.net, self.train_loader, self.epochs, config["lr"])
        return self.get_parameters({}), len(self.train_loader.dataset), {"accuracy": accuracy}

    def evaluate(self, parameters, config):
        self.set_parameters(parameters)
        loss, accuracy = test(self.net, self.test_loader)
        return loss, len(self.test_loader.dataset), {"accuracy": accuracy}


def client_fn(context: Context):
    """A client for one message."""
    node, run = context.node_config, context.run_config
    loaders = load_data(node["partition-id"], node["num-partitions"], run["batch-size"], run["alpha"])
    return DigitsClient(loaders, run["local-epochs"]).to_client()


app = ClientApp(client_fn)
