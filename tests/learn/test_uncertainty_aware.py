import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional

from dubito.errors import BadValueError, BoundWarning
from dubito.learn import UncertaintyAware, flip_labels
from dubito.measure import roc_auc


def test_it_is_a_normal_likelihood_of_one_hot_labels_up_to_its_constant() -> None:
    rng = np.random.default_rng(0)
    outputs, y = rng.normal(size=(30, 5)), rng.integers(4, size=30)
    loss = UncertaintyAware(4).loss(torch.tensor(outputs), torch.tensor(y)).item()
    normal = stats.norm(special.softmax(outputs[:, :4], axis=1), np.exp(outputs[:, 4:] / 2))
    expected = -normal.logpdf(np.eye(4)[y]).sum(axis=1).mean() - 4 / 2 * np.log(2 * np.pi)
    assert loss == pytest.approx(expected, rel=1e-12)


def test_each_s_sees_the_error_of_its_own_row() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(8, 4), torch.randint(3, (8,))
    turned = torch.cat([outputs[:, :3], outputs[:, 3:].roll(1, 0)], dim=1)
    likelihood = UncertaintyAware(3)
    difference = likelihood.loss(outputs, y) - likelihood.loss(turned, y)
    assert abs(difference.item()) > 1e-3
    assert abs(slipped(outputs, y) - slipped(turned, y)).item() < 1e-6


@pytest.mark.parametrize("form", ["joint", "faithful"])
def test_s_reaches_the_log_of_the_mean_squared_error(form: Any) -> None:
    logits, y = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    error = (functional.one_hot(y, 3) - logits.softmax(1)).square().sum().item()
    s = torch.zeros(1, 1, requires_grad=True)
    likelihood = UncertaintyAware(3, form=form)
    optimizer = torch.optim.LBFGS([s], max_iter=50, line_search_fn="strong_wolfe")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = likelihood.loss(torch.cat([logits, s], dim=1), y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(step)  # type: ignore[no-untyped-call]
    assert s.item() == pytest.approx(np.log(error / 3), abs=1e-3)


def test_below_the_floor_s_counts_as_the_floor() -> None:
    y = torch.tensor([0])
    low, at = torch.tensor([[1.0, 0.0, -9.0]]), torch.tensor([[1.0, 0.0, -2.0]])
    likelihood = UncertaintyAware(2, floor=-2.0)
    assert torch.equal(likelihood.loss(low, y), likelihood.loss(at, y))
    assert likelihood.log_variance(low).item() == -2


@pytest.mark.parametrize("form", ["joint", "faithful"])
def test_s_below_the_floor_finds_its_way_up(form: Any) -> None:
    logits, y = torch.tensor([[1.0, 0.0, -1.0]]), torch.tensor([2])
    error = (functional.one_hot(y, 3) - logits.softmax(1)).square().sum().item()
    s = torch.full((1, 1), -9.0, requires_grad=True)
    likelihood = UncertaintyAware(3, form=form)
    optimizer = torch.optim.Adam([s], lr=0.1)
    for _ in range(500):
        optimizer.zero_grad()
        likelihood.loss(torch.cat([logits, s], dim=1), y).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert s.item() == pytest.approx(np.log(error / 3), abs=1e-2)


@pytest.mark.parametrize("n_classes", [2, 10, 11, 1000, 20_000])
def test_the_floor_leaves_room_for_what_an_error_asks_for(n_classes: int) -> None:
    floor = UncertaintyAware(n_classes).floor
    assert floor is not None
    assert floor == pytest.approx(min(-4, -4 + np.log(10 / n_classes)))
    assert floor < np.log(2 / n_classes) - 2


def test_without_a_floor_it_warns() -> None:
    outputs, y = torch.tensor([[1.0, 0.0, -9.0]]), torch.tensor([0])
    likelihood = UncertaintyAware(2, floor=None)
    with pytest.warns(BoundWarning) as caught:
        loss = likelihood.loss(outputs, y)
    assert re.search(
        "UncertaintyAware without a floor has no minimum: s goes to minus infinity where the "
        r"error goes to 0\. Use floor=-4\.0\.",
        str(caught[0].message),
    )
    assert caught[0].filename == __file__
    error = (torch.tensor([1.0, 0.0]) - outputs[0, :2].softmax(0)).square().sum()
    assert loss.item() == pytest.approx(0.5 * (np.exp(9) * error.item() - 18), rel=1e-5)
    assert likelihood.log_variance(outputs).item() == -9


def test_without_a_floor_it_compiles_too() -> None:
    outputs, y = torch.tensor([[1.0, 0.0, -3.0]]), torch.tensor([0])
    likelihood = UncertaintyAware(2, floor=None)
    loss = torch.compile(likelihood.loss, backend="eager", fullgraph=True)(outputs, y)
    torch.testing.assert_close(loss, UncertaintyAware(2).loss(outputs, y))


def test_beta_weighs_rows_by_a_variance_that_is_held_fixed() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(9, 4, requires_grad=True), torch.randint(3, (9,))
    weight = (0.5 * outputs[:, 3]).exp().detach()
    plain = (weight * UncertaintyAware(3).losses(outputs, y)).mean()
    weighted = UncertaintyAware(3, beta=0.5).loss(outputs, y)
    torch.testing.assert_close(weighted, plain)
    slopes = [torch.autograd.grad(one, outputs)[0] for one in (weighted, plain)]
    torch.testing.assert_close(*slopes)


def test_the_faithful_form_trains_classes_by_cross_entropy_and_s_by_the_loss() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(9, 4, requires_grad=True), torch.randint(3, (9,))
    loss = UncertaintyAware(3, form="faithful").loss(outputs, y)
    classes = functional.cross_entropy(outputs[:, :3], y)
    joint = UncertaintyAware(3).loss(outputs, y)
    torch.testing.assert_close(loss, classes + joint)
    slope, of_classes, of_joint = (
        torch.autograd.grad(one, outputs)[0] for one in (loss, classes, joint)
    )
    torch.testing.assert_close(slope[:, :3], of_classes[:, :3])
    torch.testing.assert_close(slope[:, 3], of_joint[:, 3])


def test_certainty_has_two_names() -> None:
    outputs = torch.tensor([[1.0, 0.0, 0.5], [1.0, 0.0, -9.0]])
    likelihood = UncertaintyAware(2)
    s = np.array([0.5, -4.0])
    np.testing.assert_allclose(likelihood.certainty(outputs), np.exp(-s), rtol=1e-6)
    by_sigmoid = UncertaintyAware(2, certainty_form="sigmoid").certainty(outputs)
    np.testing.assert_allclose(by_sigmoid, 1 - special.expit(s), rtol=1e-6)
    torch.testing.assert_close(likelihood.predict(outputs).probs, outputs[:, :2].softmax(1))


NOISY = [(3, 8), (1, 7)]


def slipped(outputs: Tensor, y: Tensor) -> Tensor:
    """Return the loss with the slip of published code: [B, 1] times [B] pairs all with all."""
    errors = (functional.one_hot(y, outputs.shape[1] - 1) - outputs[:, :-1].softmax(1)).square()
    s = outputs[:, -1:].clamp(min=-4.0)
    return 0.5 * ((-s).exp() * errors.sum(1) + (outputs.shape[1] - 1) * s).mean()


def doubt_of_noisy_classes(loss: Callable[[Tensor, Tensor], Tensor]) -> float:
    """Train on digits of which some pairs are swapped; return the AUROC of s for those pairs."""
    torch.manual_seed(0)
    images, classes = load_digits(return_X_y=True)
    inputs, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(classes)
    order = torch.randperm(len(y))
    train, test = order[:900], order[900:]
    noisy = flip_labels(y, rate=0.4, pairs=NOISY, random_state=0).noisy
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 11))
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    for _ in range(300):
        rows = train[torch.randint(len(train), (64,))]
        optimizer.zero_grad()
        loss(network(inputs[rows]), noisy[rows]).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        s = UncertaintyAware(10).log_variance(network(inputs[test]))
    return roc_auc(np.isin(y[test], NOISY), s.numpy())


@pytest.mark.parametrize("form", ["joint", "faithful"])
def test_s_finds_the_classes_whose_labels_are_swapped(form: Any) -> None:
    assert doubt_of_noisy_classes(UncertaintyAware(10, form=form).loss) > 0.9


def test_s_finds_nothing_where_shapes_are_broadcast() -> None:
    assert doubt_of_noisy_classes(slipped) <= 0.65


BAD: list[tuple[Any, str]] = [
    (
        lambda: UncertaintyAware(1),
        r"`n_classes` .*, got 1\. Use n_classes=2",
    ),
    (
        lambda: UncertaintyAware(2, floor=float("nan")),
        r"`floor` .*, got nan\. Use floor=-4\.0",
    ),
    (
        lambda: UncertaintyAware(2, beta=-1.0),
        r"`beta` .*, got -1\.0\. Divide percentages by 100",
    ),
    (
        lambda: UncertaintyAware(2, form="both"),  # type: ignore[arg-type]
        r"`form` .*, got 'both'\. Use form='joint'",
    ),
    (
        lambda: UncertaintyAware(2, certainty_form="both"),  # type: ignore[arg-type]
        r"`certainty_form` .*, got 'both'\. Use certainty_form='precision'",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        call()
