import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dubito.data import Columns, scan
from dubito.doubt import energy
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning
from dubito.learn import (
    Bernoulli,
    Categorical,
    CollectedOutputs,
    LogitNoise,
    MonteCarloDropout,
    SquaredError,
    UncertaintyAware,
    collect_outputs,
)
from dubito.measure import Audit, log_loss

RNG = np.random.default_rng(0)
IMAGES = torch.from_numpy(RNG.normal(size=(25, 1, 4, 4)).astype(np.float32))
LABELS = torch.from_numpy(RNG.integers(0, 3, 25))


def network(n_outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 2, 3),
        nn.BatchNorm2d(2),
        nn.ReLU(inplace=True),
        nn.Flatten(),
        nn.Dropout(0.5),
        nn.Linear(8, 6),
        nn.ReLU(inplace=True),
        nn.Linear(6, n_outputs),
    )


def loader(*tensors: torch.Tensor, n: int = 10) -> Any:
    return DataLoader(TensorDataset(*tensors), batch_size=n)


class Heads(nn.Module):
    """Two linear heads, the one that matters registered first, put out together."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.kind = nn.Linear(16, 8), kind
        self.classes, self.other = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.body(x.flatten(1)).relu()
        both = self.classes(hidden), self.other(hidden)
        return both if self.kind == "tuple" else {"classes": both[0], "other": both[1]}


@pytest.mark.parametrize("is_training", [False, True])
def test_what_is_collected_is_what_the_model_says_in_evaluation(is_training: bool) -> None:
    model = network().train(is_training)
    state = {name: one.clone() for name, one in model.state_dict().items()}
    message: list[int] = []
    found = collect_outputs(model, loader(IMAGES, LABELS), on_progress=message.append)
    assert message == [10, 20, 25]
    assert all(module.training is is_training for module in model.modules())
    assert all(one.equal(state[name]) for name, one in model.state_dict().items())
    model.eval()
    with torch.no_grad():
        features = model[:7](IMAGES)
        np.testing.assert_allclose(found.logits.array, model(IMAGES), rtol=1e-5, atol=1e-6)
    assert found.features is not None
    assert found.weights is not None
    assert found.bias is not None
    np.testing.assert_allclose(found.features, features, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        found.features @ found.weights.T + found.bias, found.logits.array, rtol=1e-5, atol=1e-6
    )
    assert found.labels is not None
    assert (found.labels == LABELS.numpy()).all()


def same(one: CollectedOutputs, other: CollectedOutputs) -> bool:
    pairs: list[tuple[Any, Any]] = [
        (one.logits.array, other.logits.array),
        (one.features, other.features),
        (one.labels, other.labels),
        (one.weights, other.weights),
        (one.bias, other.bias),
    ]
    return all(np.array_equal(a, b) for a, b in pairs)


def test_a_file_holds_the_same_and_is_read_by_its_columns(tmp_path: Path) -> None:
    path = tmp_path / "collected.parquet"
    model, rows = network(12), loader(IMAGES, LABELS)
    held, filed = collect_outputs(model, rows), collect_outputs(model, rows, path=path)
    assert same(held, filed)
    columns = Columns(label="label", logits="logit_*", features="feature_*")
    shards = scan(path, columns)
    assert Audit.of(shards).to_dict() == Audit.of(filed.shards).to_dict()
    assert filed.logits.classes == tuple(range(12))
    assert next(shards.batches()).outputs.take(slice(0, 2)).n_rows == 2


def test_label_probabilities_go_to_a_file_too(tmp_path: Path) -> None:
    soft = torch.eye(3)[LABELS] * 0.7 + 0.1
    rows = loader(IMAGES, soft)
    held, filed = (
        collect_outputs(network(), rows),
        collect_outputs(network(), rows, path=tmp_path / "a.parquet"),
    )
    assert same(held, filed)
    assert held.labels is not None
    np.testing.assert_allclose(held.labels, soft)


@pytest.mark.parametrize("rows", [loader(IMAGES), [IMAGES[:20], IMAGES[20:]]])
def test_rows_need_no_labels(rows: Any, tmp_path: Path) -> None:
    held, filed = (
        collect_outputs(network(), rows),
        collect_outputs(network(), rows, path=tmp_path / "a.parquet"),
    )
    assert held.labels is None
    assert filed.labels is None
    assert (held.logits.array == filed.logits.array).all()


@pytest.mark.parametrize("is_soft", [False, True])
def test_missing_labels_stay_missing(is_soft: bool, tmp_path: Path) -> None:
    labels = torch.eye(3)[LABELS] if is_soft else LABELS.float()
    labels[[2, 12]] = torch.nan
    rows = loader(IMAGES, labels)
    held, filed = (
        collect_outputs(network(), rows),
        collect_outputs(network(), rows, path=tmp_path / "a.parquet"),
    )
    assert held.labels is not None
    np.testing.assert_array_equal(held.labels, labels.numpy())
    assert filed.labels is not None
    np.testing.assert_array_equal(held.labels, filed.labels)
    assert held.batch.n_missing == filed.batch.n_missing == 2
    with pytest.warns(MissingLabelsWarning):
        assert log_loss(held.labels, held.logits) > 0


def test_batches_without_rows_are_passed_over() -> None:
    empty = IMAGES[:0], LABELS[:0]
    found = collect_outputs(network(), [empty, (IMAGES, LABELS), empty])
    assert found.weights is not None
    assert found.weights.shape == (3, 6)
    assert len(found.batch) == 25
    with pytest.raises(
        BadValueError,
        match=r"`loader` must have at least 1 batch, got none\. "
        "Pass a loader with at least one row",
    ):
        collect_outputs(network(), [empty])


def test_an_error_leaves_no_file_and_the_model_as_it_was(tmp_path: Path) -> None:
    model = network().train()
    with pytest.raises(RuntimeError):
        collect_outputs(
            model, [(IMAGES, LABELS), (IMAGES[:, 0, 0], LABELS)], path=tmp_path / "a.parquet"
        )
    assert not list(tmp_path.iterdir())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks for module in model.modules())


def test_features_of_a_layer_by_name_or_itself() -> None:
    model = network().eval()
    with torch.no_grad():
        expected = model[:2](IMAGES).flatten(1)
    for layer in ("1", model[1]):
        found = collect_outputs(model, loader(IMAGES, LABELS), layer=layer)
        assert found.features is not None
        # As batch norm gave it out, before the activation that writes in its place.
        assert (found.features < 0).any()
        np.testing.assert_allclose(found.features, expected, rtol=1e-5, atol=1e-6)
        assert found.weights is not None
        assert found.weights.shape == (3, 6)


def test_a_layer_that_is_not_there_is_reported() -> None:
    with pytest.raises(
        BadValueError, match=r"`layer` .*, got 'fc'\. Use one of 0, 1, 2, 3, 4, 5, 6, 7"
    ):
        collect_outputs(network(), loader(IMAGES, LABELS), layer="fc")


class Unused(nn.Module):
    """Has layers that do not run, or return no tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.ReLU()
        self.memory = nn.LSTM(16, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.memory(x.flatten(1)[:, None])[0][:, 0]
        return out


def test_a_layer_of_no_use_is_reported() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`layer` .*, got ReLU, which ran 0 times\. Use a "
        "layer before or after it",
    ):
        collect_outputs(Unused(), loader(IMAGES, LABELS), layer="idle")
    with pytest.raises(
        BadTypeError,
        match=r"`layer` must be a layer that returns a tensor, got tuple\. Use a layer after it",
    ):
        collect_outputs(Unused(), loader(IMAGES, LABELS), layer="memory")


def test_without_a_last_layer_there_are_no_features() -> None:
    model = nn.Sequential(network(), nn.LogSoftmax(dim=1))
    with pytest.warns(DubitoWarning) as warned:
        found = collect_outputs(model, loader(IMAGES, LABELS))
    assert re.search(
        "collect_outputs found no linear layer whose outputs are those of the model, so features "
        r"and weights are None\. Pass last_layer=\.\.\., or layer=\.\.\. for features only\.",
        str(warned[0].message),
    )
    assert warned[0].filename == __file__
    assert (found.features, found.weights, found.bias) == (None, None, None)
    named = collect_outputs(model, loader(IMAGES, LABELS), last_layer="0.7")
    assert named.weights is not None
    assert named.features is not None
    assert named.features.shape == (25, 6)
    with pytest.raises(
        BadTypeError, match=r"`last_layer` .*, got ReLU\. Use `layer` for the features of any other"
    ):
        collect_outputs(model, loader(IMAGES, LABELS), last_layer="0.6")


def test_a_layer_without_bias_has_one_of_zeros() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3, bias=False))
    found = collect_outputs(model, loader(IMAGES, LABELS))
    assert found.bias is not None
    assert found.bias.tolist() == [0, 0, 0]


def test_one_logit_is_that_of_the_second_class() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 1), nn.Flatten(0))
    found = collect_outputs(model, loader(IMAGES, LABELS % 2), likelihood=Bernoulli())
    assert found.features is not None
    assert found.weights is not None
    assert found.bias is not None
    np.testing.assert_allclose(
        found.features @ found.weights.T + found.bias, found.logits.array, rtol=1e-5, atol=1e-6
    )
    assert found.logits.n_classes == 2


def test_a_likelihood_says_which_outputs_are_logits() -> None:
    model = network(4).eval()
    found = collect_outputs(model, loader(IMAGES, LABELS), likelihood=UncertaintyAware(3))
    with torch.no_grad():
        np.testing.assert_allclose(found.logits.array, model(IMAGES)[:, :3], rtol=1e-5, atol=1e-6)
    assert found.weights is not None
    assert found.weights.shape == (3, 6)


@pytest.mark.parametrize(("kind", "first"), [("tuple", 0), ("dict", "classes")])
def test_one_of_several_heads_is_named(kind: str, first: Any) -> None:
    model, rows = Heads(kind), loader(IMAGES, LABELS)
    found = collect_outputs(model, rows, head=first)
    assert found.weights is not None
    assert (found.weights == model.classes.weight.detach().numpy()).all()
    assert found.features is not None
    assert found.features.shape == (25, 8)
    names = "0, 1" if kind == "tuple" else "'classes', 'other'"
    for head in (None, "logits", 7):
        with pytest.raises(
            BadValueError,
            match=re.escape(f"outputs {names}, got {head!r}. Use head={first!r}."),
        ):
            collect_outputs(model, rows, head=head)


def test_a_head_of_a_model_with_one_output_raises() -> None:
    with pytest.raises(BadValueError, match=r"`head` .*, got 0\. Leave it out"):
        collect_outputs(network(), loader(IMAGES, LABELS), head=0)


class Silent(nn.Module):
    def forward(self, x: torch.Tensor) -> None:
        return None


def test_a_model_that_returns_no_tensor_raises() -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`model` .*, got NoneType\. Wrap it in a module that returns its logits",
    ):
        collect_outputs(Silent(), loader(IMAGES, LABELS))


@pytest.mark.parametrize("path", [None, "a.parquet"])
def test_an_empty_loader_is_reported(path: str | None, tmp_path: Path) -> None:
    with pytest.raises(
        BadValueError, match=r"`loader` .*, got none\. Pass a loader with at least one row"
    ):
        collect_outputs(network(), [], path=None if path is None else tmp_path / path)
    assert not list(tmp_path.iterdir())


def test_bad_batches_are_reported() -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`batch 0 of the loader` .*, got dict\. Use unpack=lambda batch: \(\{'input_ids': "
        r"batch\['input_ids'\]\}, batch\['labels'\]\) with the names in your batches",
    ):
        collect_outputs(network(), [{"x": IMAGES}])
    with pytest.raises(
        BadValueError,
        match=r"collect_outputs \(batch 0\): `y_true` .*, got "
        r"length 3\. Align both in the same row order",
    ):
        collect_outputs(network(), [(IMAGES, LABELS[:3])])
    with pytest.raises(
        BadValueError,
        match=r"collect_outputs \(batch 1\): `y_true` .*, got 6 "
        r"in row 0\. Labels start at 0, and outputs need "
        r"one column per class \(there are 3\)",
    ):
        collect_outputs(network(), [(IMAGES, LABELS), (IMAGES, LABELS + 5)])
    bad = IMAGES.clone()
    bad[4, 0, 0, 0] = torch.nan
    with pytest.raises(
        BadValueError,
        match=r"collect_outputs \(batch 1\): `outputs` .*, got "
        r"nan in row 4, column 0\. Drop invalid rows, or fix "
        "what produced them",
    ):
        collect_outputs(network().eval(), [(IMAGES, LABELS), (bad, LABELS)])


class Two(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_a_model_may_take_several_inputs() -> None:
    rows = torch.ones(4, 3)
    found = collect_outputs(Two(), [(rows, 2 * rows, torch.zeros(4, dtype=torch.int64))])
    assert found.logits.array.tolist() == [[3, 3, 3]] * 4


@pytest.mark.parametrize("likelihood", [Categorical(3), SquaredError(3), UncertaintyAware(3)])
def test_logits_come_exactly_as_the_network_put_them_out(likelihood: Any) -> None:
    model = network(likelihood.n_outputs).eval()
    with torch.no_grad():
        model.get_parameter("7.bias").add_(1000)
        expected = model(IMAGES)[:, :3]
    found = collect_outputs(model, [(IMAGES, LABELS)], likelihood=likelihood)
    assert (found.logits.array == expected.numpy()).all()
    levels = logsumexp(expected.double().numpy(), axis=1)
    np.testing.assert_allclose(energy(found.logits), -levels, rtol=1e-6)


@pytest.mark.parametrize("likelihood", [Categorical(3), LogitNoise(3), UncertaintyAware(3)])
def test_outputs_that_are_not_finite_are_reported_under_a_likelihood(likelihood: Any) -> None:
    bad = IMAGES.clone()
    bad[4] = torch.nan
    with pytest.raises(BadValueError) as caught:
        collect_outputs(
            network(likelihood.n_outputs), [(IMAGES, LABELS), (bad, LABELS)], likelihood=likelihood
        )
    assert str(caught.value).startswith(
        "collect_outputs (batch 1): `outputs` must be finite, got nan in row 4"
    )


def test_pixels_are_rows(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.ReLU(), nn.Conv2d(5, 3, 1))
    maps = torch.randint(3, (25, 4, 4))
    held = collect_outputs(model, loader(IMAGES, maps), layer="1")
    with torch.no_grad():
        expected = model(IMAGES).movedim(1, -1).reshape(-1, 3)
        hidden = model[:2](IMAGES).movedim(1, -1).reshape(-1, 5)
    np.testing.assert_allclose(held.logits.array, expected, rtol=1e-5, atol=1e-6)
    assert held.features is not None
    np.testing.assert_allclose(held.features, hidden, rtol=1e-5, atol=1e-6)
    assert held.labels is not None
    assert (held.labels == maps.flatten().numpy()).all()
    members = MonteCarloDropout(nn.Sequential(model, nn.Dropout(1e-9)), 1)(IMAGES)
    shares = np.exp(held.logits.array) / np.exp(held.logits.array).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(members.array[0], shares, atol=1e-6)
    soft = torch.eye(3)[maps].movedim(-1, 1)
    probable = collect_outputs(model, loader(IMAGES, soft), layer="1", path=tmp_path / "a.parquet")
    assert probable.labels is not None
    assert (probable.labels.argmax(axis=1) == held.labels).all()
    with pytest.raises(
        BadValueError, match=r"`labels` .*, got shape \(25, 2, 4\)\. Pass one entry per pixel"
    ):
        collect_outputs(model, [(IMAGES, maps[:, :2])])


def test_sequences_raise_the_error_of_passes() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`outputs` .*, got shape \(2, 5, 3\)\. Call "
        r"\.flatten\(0, 1\) in the model for a sequence "
        "with the outputs last",
    ):
        collect_outputs(nn.Linear(4, 3), [torch.ones(2, 5, 4)])


@dataclass(slots=True)
class Said:
    """What a model puts out by name."""

    logits: torch.Tensor
    loss: None = None


class Named(nn.Module):
    """Takes inputs by name and puts out something with names."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last: nn.Module = nn.Linear(16, 3)
        self.kind = kind

    def forward(self, pixels: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.kind(logits=self.last(pixels.flatten(1) * mask))


@pytest.mark.parametrize("kind", [Said, dict])
def test_batches_and_outputs_may_have_names(kind: Any) -> None:
    model, mask = Named(kind), torch.ones(25, 16)
    batch = {"pixels": IMAGES, "mask": mask, "labels": LABELS}

    def unpack(batch: Any) -> Any:
        return {"pixels": batch["pixels"], "mask": batch["mask"]}, batch["labels"]

    found = collect_outputs(model, [batch], head="logits", unpack=unpack)
    with torch.no_grad():
        np.testing.assert_allclose(found.logits.array, model.last(IMAGES.flatten(1)), rtol=1e-5)
    assert found.weights is not None
    assert found.labels is not None
    assert (found.labels == LABELS.numpy()).all()
    with pytest.raises(BadValueError, match=r"`head` .*, got None\. Use head='logits'"):
        collect_outputs(model, [batch], unpack=unpack)


def test_rows_may_have_weights(tmp_path: Path) -> None:
    weights = torch.linspace(0, 2, 25)
    rows = loader(IMAGES, LABELS, weights)
    for path in (None, tmp_path / "a.parquet"):
        found = collect_outputs(network(), rows, unpack=tuple, path=path)
        np.testing.assert_allclose(found.batch.weight, weights, rtol=1e-6)
    with pytest.raises(
        BadTypeError,
        match=r"`batch 0 of the loader` .*, got too many positional arguments\. Use unpack=lambda "
        r"batch: \(batch\[0\], batch\[1\], batch\[2\]\) for inputs, labels, weights",
    ):
        collect_outputs(network(), rows)


def test_a_model_that_is_no_module_is_reported() -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`model` must be a torch module, got function\. "
        r"Wrap the model in an nn\.Module",
    ):
        collect_outputs(lambda x: x, [IMAGES])  # type: ignore[arg-type]
