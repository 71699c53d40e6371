"""What every likelihood promises, whatever its distribution."""

import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from dubito.arrays import as_count
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import (
    BaseLikelihood,
    Bernoulli,
    Categorical,
    Gaussian,
    GeneralizedCrossEntropy,
    GeneralizedNormal,
    HeteroscedasticGaussian,
    Laplace,
    LogitNoise,
    SquaredError,
    UncertaintyAware,
)
from dubito.learn.class_likelihoods import BaseClassLikelihood

ALL: list[BaseLikelihood] = [
    Gaussian(n_targets=3, variance=0.25),
    HeteroscedasticGaussian(n_targets=3),
    HeteroscedasticGaussian(n_targets=3, beta=0.5),
    Laplace(n_targets=3),
    GeneralizedNormal(1.5, n_targets=3),
    Bernoulli(n_targets=3),
    Bernoulli(n_targets=3, uncertain="multi-class"),
    Categorical(3),
    Categorical(3, label_smoothing=0.1, form="others"),
    SquaredError(3),
    SquaredError(3, on="scores"),
    UncertaintyAware(3),
    UncertaintyAware(3, beta=0.5, form="faithful"),
    GeneralizedCrossEntropy(3),
    LogitNoise(3),
]
each = pytest.mark.parametrize("likelihood", ALL, ids=repr)


def labels_for(likelihood: BaseLikelihood, *shape: int) -> Tensor:
    """Return random labels: classes, or three targets on axis 1."""
    if isinstance(likelihood, BaseClassLikelihood):
        return torch.randint(3, shape)
    wanted = (shape[0], 3, *shape[1:])
    is_binary = isinstance(likelihood, Bernoulli)
    return torch.randint(2, wanted).float() if is_binary else torch.randn(wanted)


def as_floating(likelihood: BaseLikelihood, y: Tensor) -> Tensor:
    if isinstance(likelihood, BaseClassLikelihood):
        return torch.nn.functional.one_hot(y, 3).float()
    return y.clone()


def seeded(likelihood: BaseLikelihood, outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss with the same draws, if it draws at all."""
    torch.manual_seed(1)
    return likelihood.loss(outputs, y)


@each
def test_the_loss_is_the_mean_of_the_rows(likelihood: BaseLikelihood) -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(7, likelihood.n_outputs), labels_for(likelihood, 7)
    torch.manual_seed(1)
    losses = likelihood.losses(outputs, y)
    assert losses.shape == (7,)
    assert seeded(likelihood, outputs, y).item() == pytest.approx(losses.mean().item(), rel=1e-6)


@each
def test_every_pixel_is_a_row(likelihood: BaseLikelihood) -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(2, likelihood.n_outputs, 3, 4), labels_for(likelihood, 2, 3, 4)
    flat = outputs.movedim(1, -1).reshape(24, -1)
    is_class = isinstance(likelihood, BaseClassLikelihood)
    flat_y = y.reshape(24) if is_class else y.movedim(1, -1).reshape(24, 3)
    whole = seeded(likelihood, outputs, y).item()
    assert whole == pytest.approx(seeded(likelihood, flat, flat_y).item(), rel=1e-5)
    assert likelihood.predict(outputs).batch_shape == (2, 3, 4)
    assert likelihood.losses(outputs, y).shape == (2, 3, 4)


@each
def test_rows_of_nan_are_left_out(likelihood: BaseLikelihood) -> None:
    if isinstance(likelihood, LogitNoise):
        likelihood = LogitNoise(3, floor=-60.0)  # its draws differ with the number of rows
    torch.manual_seed(0)
    outputs = torch.randn(5, likelihood.n_outputs)
    if isinstance(likelihood, LogitNoise):
        outputs[:, 3:] = -150.0
    outputs.requires_grad_()
    y = as_floating(likelihood, labels_for(likelihood, 5))
    with_gap = y.clone()
    with_gap[2] = torch.nan
    rest = [0, 1, 3, 4]
    loss = likelihood.loss(outputs, with_gap)
    torch.testing.assert_close(loss, likelihood.loss(outputs[rest], y[rest]))
    (slope,) = torch.autograd.grad(loss, outputs)
    assert slope.isfinite().all()
    assert not slope[2].any()
    assert likelihood.losses(outputs, with_gap)[2].item() == 0
    nothing = likelihood.loss(outputs, torch.full_like(y, torch.nan))
    assert nothing.item() == 0
    nothing.backward()  # type: ignore[no-untyped-call]


@each
@pytest.mark.parametrize("size", [1e-3, 1.0, 60.0, 1e4])
def test_losses_and_slopes_are_finite(likelihood: BaseLikelihood, size: float) -> None:
    torch.manual_seed(0)
    outputs = (size * torch.randn(50, likelihood.n_outputs)).requires_grad_()
    loss = likelihood.loss(outputs, labels_for(likelihood, 50))
    (slope,) = torch.autograd.grad(loss, outputs)
    assert loss.isfinite()
    assert slope.isfinite().all()
    assert loss.dtype == torch.float32
    distribution = likelihood.predict(outputs.detach())
    assert distribution.mode.isfinite().all()


@each
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_changes_nothing_but_the_outputs(
    likelihood: BaseLikelihood, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, likelihood.n_outputs)
    inputs, y = torch.randn(20, 4), labels_for(likelihood, 20)
    with torch.autocast("cpu", dtype=dtype):
        outputs = layer(inputs)
        loss = seeded(likelihood, outputs, y)
    assert outputs.dtype == dtype
    assert loss.dtype == torch.float32
    wide = seeded(likelihood, outputs.detach().float(), y)
    assert loss.item() == pytest.approx(wide.item(), rel=1e-6)
    loss.backward()  # type: ignore[no-untyped-call]
    assert layer.weight.grad is not None
    assert layer.weight.grad.isfinite().all()


# What `beta` and the faithful form hold fixed on purpose is tested where they are.
@pytest.mark.parametrize(
    "likelihood", [one for one in ALL if not getattr(one, "beta", 0)], ids=repr
)
def test_the_slopes_are_those_of_the_loss(likelihood: BaseLikelihood) -> None:
    torch.manual_seed(0)
    outputs = torch.randn(4, likelihood.n_outputs, dtype=torch.float64, requires_grad=True)
    y = labels_for(likelihood, 4)
    assert torch.autograd.gradcheck(lambda x: seeded(likelihood, x, y), (outputs,))


@each
def test_they_pickle_and_compare(likelihood: BaseLikelihood) -> None:
    assert pickle.loads(pickle.dumps(likelihood)) == likelihood


@each
def test_labels_and_outputs_stay_untouched(likelihood: BaseLikelihood) -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(4, likelihood.n_outputs), labels_for(likelihood, 4)
    before = outputs.clone(), y.clone()
    likelihood.loss(outputs, y)
    likelihood.predict(outputs)
    assert torch.equal(outputs, before[0])
    assert torch.equal(y, before[1])


def test_without_torch_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import dubito\n"
        "try:\n    import dubito.learn\n"
        "except dubito.errors.MissingExtraError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wanted = (
        "dubito.learn needs PyTorch, which is not installed. Run `pip install 'dubito[torch]'`.\n"
    )
    assert done.stdout == wanted


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: Gaussian().loss([[1.0]], torch.ones(1)),  # type: ignore[arg-type]
        BadTypeError,
        r"`outputs` .*, got list\. Use torch\.as_tensor\(\.\.\.\)",
    ),
    (
        lambda: Categorical(3).predict(torch.ones(2, 4)),
        BadValueError,
        r"`outputs` .*, got shape \(2, 4\)\. Use a last layer with 3 outputs",
    ),
    (
        lambda: Gaussian().losses(torch.ones(2), torch.ones(2)),
        BadValueError,
        r"`outputs` .*, got shape \(2,\)\. Use a last layer with 1 outputs",
    ),
    (
        lambda: Gaussian().predict(torch.ones(2, 1, dtype=torch.int64)),
        BadTypeError,
        r"`outputs` .*, got torch\.int64\. Call \.float\(\)",
    ),
    (
        lambda: as_count(True, "n_targets", "Gaussian"),
        BadValueError,
        r"`n_targets` .*, got True\. Use n_targets=1",
    ),
    (
        lambda: Laplace(floor=float("nan")),
        BadValueError,
        r"`floor` .*, got nan\. Use floor=-4\.0",
    ),
    (
        lambda: Gaussian(variance=0),
        BadValueError,
        r"`variance` .*, got 0\. Use variance=1\.0",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


@each
# The compiler itself makes what it warns of.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_a_loss_compiles_as_a_whole(likelihood: BaseLikelihood) -> None:
    torch.manual_seed(0)
    outputs = (10 * torch.randn(5, likelihood.n_outputs)).requires_grad_()
    y = labels_for(likelihood, 5)
    torch.compiler.reset()
    compiled = torch.compile(likelihood.loss, backend="eager", fullgraph=True)
    for truth in (y, as_floating(likelihood, y)):
        torch.manual_seed(1)
        expected = likelihood.loss(outputs, truth)
        torch.manual_seed(1)
        found = compiled(outputs, truth)
        torch.testing.assert_close(found, expected)
        slopes = [torch.autograd.grad(one, outputs)[0] for one in (found, expected)]
        torch.testing.assert_close(*slopes)
