"""Models by name, by reference, and as one module that is cut at its head."""

import copy
import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import firma
from firma.errors import BadInput
from firma.models import InputSpec, build_model, model_spec
from firma.models.images import cnn, resnet
from firma.models.record import rebuild
from firma.models.reference import Reference, files
from firma.models.tokens import transformer
from tests.own_models import forget, modules_of, write_models

QUICK = {"epochs": 1, "extractor_epochs": 1}
FLOATS = np.dtype(np.float32)
LABELS = np.arange(60) % 3
TINY = {"scenario": "iid", "method": "local", "clients": 2, "rounds": 1, "settings": {"epochs": 1}}


@pytest.fixture
def folder(tmp_path):
    with modules_of(write_models(tmp_path)) as place:
        yield place


def logits(model, x):
    with torch.no_grad():
        return model[1](model[0](x))


class Net(nn.Module):
    """One module; `after` is applied to what its last layer returns."""

    def __init__(self, after=None, draws=0.0):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(draws))
        self.classifier = nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 10))
        self.after = after

    def forward(self, x):
        out = self.classifier(self.body(x))
        return out if self.after is None else self.after(out)


class Tied(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self):
        super().__init__()
        self.flat, self.first, self.fc = nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 64)
        self.fc.weight = self.first.weight

    def forward(self, x):
        return self.fc(self.first(self.flat(x)))


# Built-in models


@pytest.mark.parametrize("build", [cnn, resnet])
@pytest.mark.parametrize("shape", [(8, 8), (1, 28, 28), (3, 9, 7), (9, 7, 3), (1, 1), (4, 4, 4)])
def test_images_of_every_form(build, shape):
    parts = build(shape, 5, width=8)
    assert logits(parts, torch.randn(2, *shape)).shape == (2, 5)
    assert not list(parts[0].buffers()), "nothing but weights is shared or remembered"
    parts[0].train()
    assert torch.isfinite(parts[0](torch.randn(1, *shape))).all(), "a batch of one sample is no special case"


@pytest.mark.parametrize("build", [cnn, resnet])
def test_channels_may_be_last(build):
    """With the same weights, an image with channels first and the same image with channels last are the same image."""
    models = []
    for shape in ((3, 8, 6), (8, 6, 3)):
        torch.manual_seed(0)
        models.append(build(shape, 4, width=8))
    x = torch.randn(2, 3, 8, 6)
    assert torch.equal(logits(models[0], x), logits(models[1], x.permute(0, 2, 3, 1)))
    torch.manual_seed(0)
    stated = build((8, 8, 12), 4, width=8, channels="last")
    assert logits(stated, torch.randn(2, 8, 8, 12)).shape == (2, 4)


def test_the_resnet_of_depth_3_has_the_size_of_resnet_20():
    """He et al., table 6: 0.27 million parameters and 20 layers, of which one is the head."""
    extractor, head = resnet((3, 32, 32), 10, depth=3)
    layers = [each for each in extractor.modules() if isinstance(each, nn.Conv2d) and each.kernel_size == (3, 3)]
    assert len(layers) == 19
    assert 0.265e6 < sum(each.numel() for part in (extractor, head) for each in part.parameters()) < 0.28e6


def torch_encoder(extractor, tokens):
    """The same from torch's own layers: pre-norm, GELU, padding masked, mean over the rest."""
    width, heads = extractor.embedding.embedding_dim, extractor.blocks[0].heads
    states, padding = extractor.embedding(tokens) + extractor.positions, tokens == 0
    for block in extractor.blocks:
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
        layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias = block.query_key_value.parameters()
        layer.self_attn.out_proj.weight, layer.self_attn.out_proj.bias = block.output.parameters()
        layer.norm1, layer.norm2 = block.attention_norm, block.network_norm
        layer.linear1, layer.linear2 = block.network[0], block.network[2]
        states = layer(states, src_key_padding_mask=padding)
    return torch.stack(
        [extractor.norm(row)[~hidden].mean(0) for row, hidden in zip(states, padding, strict=True)]
    )  # fmt: skip


def test_the_transformer_is_torchs_with_padding_masked():
    torch.manual_seed(0)
    extractor, _ = transformer((7,), 3, vocabulary=11, width=12, depth=2, heads=3)
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2], [6, 5, 3, 0, 0, 0, 0], [10, 0, 0, 0, 0, 0, 0]])
    with torch.no_grad():
        torch.testing.assert_close(extractor(tokens), torch_encoder(extractor, tokens))
        assert torch.equal(extractor(torch.zeros(1, 7, dtype=torch.int64)), torch.zeros(1, 12)), "padding alone"
        before = extractor(tokens)
        extractor.positions[3:] = 100.0  # where the second sequence is padding
        extractor.embedding.weight[0] = -100.0
        assert torch.equal(extractor(tokens)[1:], before[1:])


def sequences(rows=240, length=6, vocabulary=9):
    """Tokens, with padding at the end; the class is which of two tokens comes first."""
    rng = np.random.default_rng(0)
    x = rng.integers(3, vocabulary, (rows, length))
    y = rng.integers(0, 2, rows)
    x[:, 0] = 1 + y
    x[: rows // 2, -2:] = 0
    return x, y


def test_a_transformer_learns_and_takes_its_vocabulary_from_the_data():
    x, y = sequences()
    result = firma.run(
        (x, y), "iid", "fibfl+", clients=2, rounds=3, model="transformer", model_set={"width": 16, "depth": 1},
        settings={"extractor_epochs": 4, "rate": 0.01},
    )  # fmt: skip
    assert result.metrics["mean_accuracy"] > 0.9
    assert result.config["model"]["settings"] == {
        "vocabulary": 9, "width": 16, "depth": 1, "heads": 4, "dropout": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["cnn", "resnet"])
def test_image_models_learn(name):
    result = firma.run(
        "digits", "iid", "fibfl++", clients=2, rounds=2, model=name, model_set={"width": 8},
        settings={"extractor_epochs": 3},
    )  # fmt: skip
    assert result.metrics["mean_accuracy"] > 0.7
    assert not {"hidden", "embedding"} & set(result.config["hyper"]), "they are the mlp's"
    assert result.config["model"]["settings"]["width"] == 8


@pytest.mark.parametrize("name", ["cnn", "resnet", "transformer"])
def test_weights_are_drawn_from_seed_and_client(name):
    shape, dtype = ((6,), np.int64) if name == "transformer" else ((8, 8), np.uint8)
    spec, inputs = (
        model_spec(name, {"vocabulary": 9} if name == "transformer" else {}),
        InputSpec(shape, np.dtype(dtype)),
    )
    drawn = [build_model(spec, inputs, 3, seed, client).flat() for seed, client in ((0, 0), (0, 0), (1, 0), (0, 1))]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[3])


# Parameters


def test_sizes_of_the_mlp_are_settings_of_the_run(command):
    words = ["run", "--method", "local", "--rounds", "1", "--set", "epochs=1", "--json"]
    runs = [
        json.loads(command(*words, *more)[1])["results"][0]
        for more in (["--set", "hidden=24"], ["--model-set", "hidden=24"])
    ]
    for each in runs:
        del each["seconds"]
    assert runs[0] == runs[1]
    assert runs[0]["config"]["settings"]["hidden"] == 24
    assert runs[0]["config"]["model"]["settings"] == {"hidden": 24, "embedding": 128}


def test_parameters_have_the_types_of_the_function(folder):
    (folder / "typed.py").write_text(
        "from __future__ import annotations\n"
        "from torch import nn\n"
        "def build(a: int, b: float = 1.0, c: bool = True, d: tuple[int, ...] = (), e: int | None = 3, f='x', g=(1,),\n"
        "          *, h=None, **more):\n"
        "    build.seen = {**locals()}\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), nn.Linear(4, 10)\n"
    )
    given = {
        "a": "3", "b": "2", "c": "no", "d": "4,5", "e": "none", "f": "y", "g": "6,7", "h": "0.5", "extra": "true",
    }  # fmt: skip
    spec = model_spec("typed:build", given)
    build_model(spec, InputSpec((8, 8), FLOATS), 10, 0, 0)
    assert spec.builder.seen == {
        "a": 3, "b": 2.0, "c": False, "d": (4, 5), "e": None, "f": "y", "g": (6, 7), "h": 0.5, "more": {"extra": True},
    }  # fmt: skip
    with pytest.raises(BadInput, match=r"parameter 'a' has no default; set it with --model-set a=VALUE"):
        build_model(model_spec("typed:build"), InputSpec((8, 8), FLOATS), 10, 0, 0)
    with pytest.raises(BadInput, match="model parameter a = 'many': must be a valid integer"):
        model_spec("typed:build", {"a": "many"})
    with pytest.raises(BadInput, match="must be a number, text, true or false, or a list"):
        model_spec("typed:build", {"a": 1, "h": nn.ReLU()})


def test_models_are_listed(command, folder):
    _, out, _ = command("models")
    for words in ("mlp", "hidden: int, default 256", "channels: auto or first or last", "vocabulary: int, required"):
        assert words in out
    code, out, _ = command("models", "mynet:build", "--json")
    assert code == 0
    (found,) = json.loads(out)["models"]
    assert found["parameters"] == [{"name": "width", "type": "int", "required": False, "default": 8}]
    assert command("models", "cn")[2].startswith("firma: model 'cn' is unknown (did you mean 'cnn'?)")


# One module and the name of its head


@pytest.mark.parametrize("head", ["classifier", "classifier.1"])
def test_a_module_is_cut_at_its_head_and_computes_the_same(head):
    module = Net(draws=0.5)
    before = copy.deepcopy(module.state_dict()), module.training
    split = build_model(model_spec(module, head=head), InputSpec((8, 8), FLOATS), 10, 0, 0)
    x = torch.randn(5, 8, 8)
    module.eval(), split.extractor.eval(), split.head.eval()
    assert torch.equal(split.head(split.extractor(x)), module(x))
    assert all(torch.equal(value, before[0][name]) for name, value in module.state_dict().items()), "untouched"
    assert before[1] is True
    assert module.get_submodule(head) is not split.head
    names = [name for name, _ in split.head.named_parameters()]
    assert names == (["weight", "bias"] if head == "classifier.1" else ["0.weight", "0.bias", "1.weight", "1.bias"])


def test_a_run_of_one_module_is_the_run_of_its_two_parts():
    torch.manual_seed(0)
    net = Net()
    pair = nn.Sequential(net.body, net.classifier[0]), net.classifier[1]
    one = firma.run("digits", model=net, head="classifier.1", **TINY)
    two = firma.run("digits", model=pair, **TINY)
    assert np.array_equal(one.history, two.history)
    assert torch.equal(one.parameters, two.parameters)
    assert one.config["model"]["head"] == "classifier.1"
    whole = firma.run("digits", model=Net, head="classifier.1", **TINY)
    assert whole.config["model"]["name"].endswith("test_models:Net"), "a class is a function that returns a module"
    again = firma.run("digits", model=one.model(0), **TINY | {"settings": {"epochs": 0}})
    assert torch.equal(again.parameters[0], one.parameters[0]), "training starts from a trained model"


@pytest.mark.parametrize(
    ("model", "head", "words"),
    [
        (Net(), None, ["Net is one module", "head='classifier.1'", "--head classifier.1"]),
        (Net, None, ["Net is one module", "head='classifier.1'"]),
        (Net(), "clasifier", ["head 'clasifier' is unknown", "did you mean 'classifier'?"]),
        (Net(), "body", ["head = 'body'", "does not work without this layer"]),
        (Net(), "classifier.0", ["head = 'classifier.0'", "does not work without this layer"]),
        (Net(torch.log_softmax, 0), "classifier", ["cannot process inputs", "log_softmax"]),
        (Net(nn.LogSoftmax(1)), "classifier", ["is not the last layer"]),
        (Net(lambda out: {"logits": out}), "classifier", ["its output is of type dict; must be a tensor"]),
        (Net(lambda out: (out, out)), "classifier", ["its output is of type tuple; must be a tensor"]),
        (Tied(), "fc", ["head = 'fc' shares a parameter with the rest of the model (tied weights)"]),
        (nn.Linear(64, 10), "fc", ["single layer (Linear) and cannot be cut"]),
        ((nn.Flatten, nn.Linear), None, ["Flatten is a class; pass an instance, such as Flatten(...)"]),
        (lambda: (nn.Flatten, nn.Linear), None, ["Flatten is a class; pass an instance"]),
        (lambda: None, None, ["'<lambda>' returned NoneType; must return a pair of modules (extractor, head)"]),
        (lambda: nn.Linear, None, ["returned the class Linear"]),
        (lambda: 1 / 0, None, ["'<lambda>': <lambda>() failed (ZeroDivisionError: division by zero"]),
        (lambda depth: None, None, ["parameter 'depth' has no default", "--model-set depth=VALUE"]),
        (lambda shape, /: None, None, ["parameter 'shape' is positional-only"]),
        (lambda: (nn.Linear(64, 4), nn.Linear(4, 10)), "fc", ["returns a pair (extractor, head); leave head out"]),
        ((nn.Linear(64, 4), nn.Linear(4, 10)), "fc", ["already has an extractor and a head; leave head out"]),
        ("mlp", "fc", ["model mlp already has an extractor and a head; leave head out"]),
        ({"extractor": nn.Linear(64, 10)}, None, ["type dict is not supported", "mlp, cnn, resnet, transformer"]),
        (None, None, ["type NoneType is not supported"]),
        ("resnet18", None, ["model 'resnet18' is unknown (did you mean 'resnet'?)", "MODULE:FUNCTION"]),
    ],
)
def test_a_model_that_cannot_be_used_is_one_sentence(model, head, words):
    with pytest.raises(BadInput) as caught:
        firma.run("digits", model=model, head=head, **TINY)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "cnn", "model_set": {"widht": 3}}, ["parameter 'widht' is unknown (did you mean 'width'?)"]),
        ({"model": "cnn", "model_set": {"width": 0}}, ["width = 0: must be at least 1"]),
        ({"model": "cnn", "settings": {"hidden": 8}}, ["setting 'hidden' belongs to the built-in mlp", "--model-set"]),
        ({"model_set": {"hidden": 8}, "settings": {"hidden": 9}}, ["hidden is set twice, to 9 and to 8"]),
        ({"model": Net(), "head": "classifier", "model_set": {"a": 1}}, ["already built; pass the function"]),
        ({"model": lambda: None, "model_set": {"a": 1}}, ["parameter 'a' is unknown; this model has no parameters"]),
        ({"model": "cnn", "dataset": (np.zeros((60, 4)), LABELS)}, ["(4,)", "--model mlp for flat inputs"]),
        (
            {"model": "resnet", "dataset": (np.zeros((60, 5, 5, 5)), LABELS)},
            ["cannot tell which axis of (5, 5, 5) holds the channels", "channels=first"],
        ),
        ({"model": "transformer"}, ["inputs are uint8", "astype('int64')"]),
        ({"model": "transformer", "dataset": (np.full((60, 4), 0.5), LABELS)}, ["requires tokens", "float64"]),
        ({"model": "transformer", "dataset": (np.full((60, 4), -1), LABELS)}, ["contain token -1"]),
        ({"model": "transformer", "dataset": (np.ones((60, 2, 2), int), LABELS)}, ["(2, 2)", "--model cnn"]),
        (
            {"model": "transformer", "dataset": (np.full((60, 4), 7), LABELS), "model_set": {"vocabulary": 7}},
            ["vocabulary = 7, but the data contain token 7; must be at least 8"],
        ),
        (
            {"model": "transformer", "dataset": (np.ones((60, 4), int), LABELS), "model_set": {"width": 9}},
            ["width = 9 must be a multiple of heads = 4"],
        ),
    ],
)
def test_parameters_that_do_not_fit_are_one_sentence(options, words):
    with pytest.raises(BadInput) as caught:
        firma.run(**{"dataset": "digits"} | TINY | options)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_list_of_one_method_is_that_method():
    one, two = (firma.run("digits", **TINY | {"method": method}) for method in ("local", ["local"]))
    assert np.array_equal(one.history, two.history)


class Words(nn.Module):
    """One module that reads integers."""

    def __init__(self):
        super().__init__()
        self.embedding, self.fc = nn.Embedding(9, 4), nn.Linear(4, 2)

    def forward(self, tokens):
        return self.fc(self.embedding(tokens).mean(1))


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint8])
def test_a_module_that_reads_integers_is_cut_too(dtype):
    x, y = sequences()
    result = firma.run((x.astype(dtype), y), model=Words(), head="fc", **TINY)
    assert result.config["model"]["tensors"] == {
        "extractor.embedding.weight": [9, 4], "head.weight": [2, 4], "head.bias": [2],
    }  # fmt: skip
    assert result.template.inputs == "int64"


def test_a_module_with_lazy_layers_is_cut_too():
    torch.manual_seed(0)
    lazy = nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.Linear(8, 10))
    spec, inputs = model_spec(lazy, head="3"), InputSpec((8, 8), FLOATS)
    drawn = [build_model(spec, inputs, 10, seed, 0).flat() for seed in (0, 0, 1)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2]), "a lazy layer draws from the seed"
    assert type(lazy[1]) is nn.LazyLinear, "the user's module is untouched"


# Models by reference


def test_by_reference_in_the_command_line_in_toml_and_in_python(command, folder):
    words = ["--method", "fibfl", "--clients", "2", "--rounds", "1", "--set", "extractor_epochs=1", "--json"]
    paths = list(sys.path)
    runs = [command("run", "--model", "mynet:whole", "--head", "fc", "--model-set", "width=12", *words)]
    runs.append(command("run", "--model", "mynet:build", "--model-set", "width=12", *words))
    (folder / "run.toml").write_text('model = "mynet:whole"\nhead = "fc"\n[model_set]\nwidth = 12\n')
    runs.append(command("run", "run.toml", *words))
    (folder / "dash.toml").write_text('model = "mynet:whole"\nhead = "fc"\nmodel-set = {width = 99}\n')
    runs.append(command("run", "dash.toml", "--model-set", "width=12", *words))
    assert [code for code, *_ in runs] == [0] * 4, runs
    assert sys.path == paths
    results = [json.loads(out)["results"][0] for _, out, _ in runs]
    options = {"clients": 2, "rounds": 1, "settings": {"extractor_epochs": 1}}
    for model in ("mynet:whole", sys.modules["mynet"].whole):
        results.append(firma.run(method="fibfl", model=model, head="fc", model_set={"width": 12}, **options).as_dict())
    assert all(each["history"] == results[0]["history"] for each in results)
    record = results[0]["config"]["model"]
    assert record["name"] == "mynet:whole"
    assert record["files"] == {
        name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in ("layers.py", "mynet.py")
    }
    assert results[-1]["config"]["model"] == record, "a function that can be imported is recorded by its reference"
    assert json.loads(runs[0][1])["config"]["model"] == "mynet:whole"


def test_the_installed_command_finds_a_file_in_the_current_folder(folder):
    script = "from firma.cli import main; main()"  # as bin/firma does; python -P leaves the folder out of the path
    words = ["run", "--model", "mynet:build", "--method", "local", "--clients", "2", "--rounds", "1", "--json"]
    found = subprocess.run([sys.executable, "-P", "-c", script, *words], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize(
    ("model", "text", "words"),
    [
        ("mynett:build", "", ["there is no module 'mynett' (did you mean 'mynet'?)", "in the current folder"]),
        ("odd:build", "import nowhere_to_be_found", ["module 'odd' requires the module 'nowhere_to_be_found'"]),
        ("odd:build", "def build(:", ["importing odd failed (SyntaxError"]),
        (
            "odd:build",
            "x = 1\ny = x / 0",
            ["importing odd failed (ZeroDivisionError: division by zero, odd.py, line 2)"],
        ),
        ("odd:buidl", "def build(): pass", ["function 'buidl' is unknown (did you mean 'build'?)"]),
        ("odd:build", "x = 1", ["module odd defines no functions"]),
        ("odd:build", "build = 3", ["build is of type int; must be a function"]),
        (
            "odd:build",
            "def build(shape):\n    return shape[7]",
            ["build(shape=(8, 8)) failed (IndexError", "odd.py, line 2"],
        ),
        ("odd.py:build", "", ["write 'odd:build'"]),
        ("./sub/odd.py:build", "", ["write 'sub.odd:build'"]),
        ("odd", "def build(): pass", ["odd is a module; name the function in it, such as odd:build"]),
        ("odd:", "", ["must be MODULE:FUNCTION, such as mymodel:build"]),
        ("__main__:build", "", ["pass the function itself"]),
    ],
)
def test_a_reference_that_leads_nowhere_is_one_sentence(command, folder, model, text, words):
    (folder / "odd.py").write_text(text)
    code, _, err = command("run", "--model", model, "--rounds", "1")
    assert (code, err.count("\n")) == (2, 1), err
    assert all(word in err for word in words), err


def test_the_files_of_a_reference(folder):
    package = folder / "pkg"
    (package / "deep").mkdir(parents=True)
    for name, text in {
        "__init__.py": "", "net.py": "from .deep import part\nimport layers, json, torch", "other.py": "",
        "deep/__init__.py": "", "deep/part.py": "import space.inner", "notes.txt": "",
    }.items():  # fmt: skip
        (package / name).write_text(text)
    (folder / "space").mkdir()
    (folder / "space" / "inner.py").write_text("from . import beside")
    (folder / "space" / "beside.py").write_text("raise SystemExit('nothing is imported to find files')")
    assert list(files(Reference("pkg.net", "build"))) == [
        "layers.py", "pkg/__init__.py", "pkg/deep/__init__.py", "pkg/deep/part.py", "pkg/net.py", "pkg/other.py",
        "space/beside.py", "space/inner.py",
    ]  # fmt: skip
    assert list(files(Reference("mynet", "build"))) == ["layers.py", "mynet.py"]
    assert list(files(Reference("space.inner", "build"))) == ["space/beside.py", "space/inner.py"]
    assert all(name.startswith("safetensors/") for name in files(Reference("safetensors.torch", "load"))), "installed"


def test_an_adapter_is_shared_and_its_frozen_base_stays(folder):
    result = firma.run(
        "digits", "dir-0.5", "fibfl", clients=3, rounds=3, model="adapter:build", audit=True,
        settings={"extractor_epochs": 4},
    )  # fmt: skip
    layout = [piece.name for piece in result.template.layout().pieces]
    assert layout == ["extractor.1.down.weight", "extractor.1.up.weight", "head.weight", "head.bias"]
    start = build_model(model_spec("adapter:build"), InputSpec((8, 8), FLOATS), 10, 0, 0)
    for client in range(3):
        trained = result.model(client).extractor[1]
        assert torch.equal(trained.base.weight, start.extractor[1].base.weight)
        assert trained.up.weight.abs().max() > 0, "the adapter has learnt"
    assert result.audit["messages_with_head"] == 0


# What a result records, and the model that is built from it again


def test_a_saved_result_gives_its_model_back(folder):
    options = {"scenario": "iid", "method": "fibfl++", "clients": 2, "rounds": 1, "settings": QUICK}
    for model, more in (
        ("mynet:whole", {"head": "fc", "model_set": {"width": 5}}),
        ("cnn", {"model_set": {"width": 4}}),
    ):
        result = firma.run("digits", model=model, **more, **options)
        saved = firma.load(result.save(folder / model.partition(":")[0]))
        forget(folder)
        again = rebuild(saved.config["model"]).filled(saved.parameters[1])
        x = torch.rand(3, 8, 8)
        theirs = result.model(1)
        assert torch.equal(again.head(again.extractor(x)), theirs.head(theirs.extractor(x)))
    default = firma.run("digits", **options)
    assert torch.equal(rebuild(default.config["model"]).filled(default.parameters[0]).flat(), default.parameters[0])


def test_results_of_different_models_are_not_averaged(folder):
    """The message names what the user set, not each tensor that follows from it."""
    runs = [firma.run("digits", model="mynet:build", model_set={"width": width}, **TINY) for width in (4, 8)]
    with pytest.raises(BadInput, match=r"the 2 results of local differ in model\.width \(4, 8\);"):
        firma.compare(runs)
    forget(folder)
    (folder / "layers.py").write_text((folder / "layers.py").read_text() + "# a note\n")
    runs.append(firma.run("digits", model="mynet:build", model_set={"width": 8}, **TINY))
    with pytest.raises(BadInput, match=r"differ in model\.code"):
        firma.compare(runs[1:])
    runs.append(firma.run("digits", model="cnn", model_set={"width": 8}, **TINY))
    with pytest.raises(BadInput, match=r"differ in model \(mynet:build, cnn\)"):
        firma.compare(runs[2:])


def test_code_that_has_changed_is_named(folder):
    record = firma.run("digits", model="mynet:whole", head="fc", **TINY).config["model"]
    text = (folder / "layers.py").read_text()
    forget(folder)
    (folder / "layers.py").write_text(text.replace("x * self.weight", "x + self.weight"))
    with pytest.warns(
        UserWarning, match=r"layers\.py differs \(sha256 .* here, .* recorded\)\. Its structure still fits"
    ):
        rebuild(record)
    forget(folder)
    (folder / "layers.py").write_text(text.replace("torch.ones(width)", "torch.ones(1)"))
    with pytest.raises(
        BadInput, match=r"tensor extractor\.body\.3\.weight has shape \(1,\); expected \(8,\).*layers\.py"
    ):
        rebuild(record)
    forget(folder)
    (folder / "mynet.py").unlink()
    with pytest.raises(BadInput, match="there is no module 'mynet'"):
        rebuild(record)


def test_objects_need_their_code_again():
    pair = nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), nn.Linear(8, 10)
    result = firma.run("digits", model=pair, **TINY)
    record = json.loads(json.dumps(result.config["model"]))
    assert record["kind"] == "objects"
    assert "Linear(in_features=64, out_features=8, bias=True)" in record["modules"]
    with pytest.raises(BadInput, match=r"was passed as Python objects.*pass the same model again"):
        rebuild(record)
    assert torch.equal(rebuild(record, model_spec(pair)).filled(result.parameters[0]).flat(), result.parameters[0])
    tanh = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.Tanh()), nn.Linear(8, 10)
    with pytest.warns(UserWarning, match="has the tensors of this result, but other modules, options or code"):
        rebuild(record, model_spec(tanh))
    other = nn.Sequential(nn.Flatten(), nn.Linear(64, 9)), nn.Linear(9, 10)
    with pytest.raises(BadInput, match=r"no longer fits.*\(9, 64\); expected \(8, 64\)"):
        rebuild(record, model_spec(other))
