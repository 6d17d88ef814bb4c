"""The ClientApp in Flower's message API."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from digits_app.task import Net, load_data, test
from digits_app.task import train as fit

app = ClientApp()


def prepare(msg: Message, context: Context):
    """The model with the weights that were received, and this node's data."""
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    node, run = context.node_config, context.run_config
    return net, *load_data(node["partition-id"], node["num-partitions"], run["batch-size"], run["alpha"])


@app.train()
def train(msg: Message, context: Context):
    """Train on this node's data."""
    net, loader, _ = prepare(msg, context)
    loss, accuracy = fit(net, loader, context.run_config["local-epochs"], msg.content["config"]["lr"])
    metrics = MetricRecord({"train_loss": loss, "accuracy": accuracy, "num-examples": len(loader.dataset)})
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    """Test on this node's data."""
    net, _, loader = prepare(msg, context)
    loss, accuracy = test(net, loader)
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(loader.dataset)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)
