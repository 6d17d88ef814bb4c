"""Flower apps: the example, and small ones made for one test. Run by `make test-flower`, with local data only."""

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
EXAMPLE = Path(__file__).parents[2] / "examples" / "flower_app"
if str(EXAMPLE) not in sys.path:
    sys.path.insert(0, str(EXAMPLE))

START = {"body.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "fc.weight": np.ones(2, dtype=np.float32)}


def message_app(train, samples=lambda client: 10 + client, evaluate=None):
    """An app in the message API; `train(arrays, message, context)` gives new arrays, or (arrays, metrics)."""
    app = ClientApp()

    @app.train()
    def fit(message, context):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        result = train(arrays, message, context)
        new, metrics = result if isinstance(result, tuple) else (result, {})
        record = MetricRecord({"num-examples": samples(context.node_config["partition-id"])} | metrics)
        arrays = ArrayRecord({name: Array(np.asarray(array)) for name, array in new.items()})
        return Message(RecordDict({"arrays": arrays, "metrics": record}), reply_to=message)

    @app.evaluate()
    def test(message, context):
        arrays = {name: array.numpy() for name, array in message.content["arrays"].items()}
        metrics = {"accuracy": 0.5} if evaluate is None else evaluate(arrays, message, context)
        return Message(RecordDict({"metrics": MetricRecord({"num-examples": 7} | metrics)}), reply_to=message)

    return app


def numpy_app(fit, parameters=()):
    """An app with a client_fn; `fit(parameters, config)` gives new ones."""

    class Client(NumPyClient):
        def get_parameters(self, config):
            return list(parameters)

        def fit(self, parameters, config):
            return fit(parameters, config), 3, {}

        def evaluate(self, parameters, config):
            return 1.5, 4, {"accuracy": 0.25}

    return ClientApp(lambda context: Client().to_client())


@pytest.fixture
def plus_client():
    """Every client adds its number plus one to every array."""
    return message_app(
        lambda arrays, message, context: {
            name: array + np.float32(context.node_config["partition-id"] + 1) for name, array in arrays.items()
        }
    )
