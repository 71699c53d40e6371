import numpy as np
import pytest
import torch
from scipy import special, stats
from torch.nn import functional

from dubito.errors import BadValueError
from dubito.learn import Categorical, smooth_labels, uncertain_labels


def test_it_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    logits, y = 3 * rng.normal(size=(30, 4)), rng.integers(4, size=30)
    one_hot = np.eye(4)[y]
    expected = -stats.multinomial(1, special.softmax(logits, axis=1)).logpmf(one_hot)
    losses = Categorical(4).losses(torch.tensor(logits), torch.tensor(y))
    np.testing.assert_allclose(losses, expected, rtol=1e-10)
    says = Categorical(4).predict(torch.tensor(logits)).probs
    np.testing.assert_allclose(says, special.softmax(logits, axis=1), rtol=1e-10)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 1.0])
def test_smoothing_over_all_is_that_of_pytorch(smoothing: float) -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(20, 5), torch.randint(5, (20,))
    expected = functional.cross_entropy(logits, y, label_smoothing=smoothing)
    torch.testing.assert_close(Categorical(5, smoothing).loss(logits, y), expected)


@pytest.mark.parametrize("form", ["all", "others"])
def test_smoothing_here_is_smoothing_of_labels(form: str) -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(20, 5), torch.randint(5, (20,))
    smooth = smooth_labels(y, 5, 0.2, form)  # type: ignore[arg-type]
    loss = Categorical(5, 0.2, form).loss(logits, y)  # type: ignore[arg-type]
    torch.testing.assert_close(loss, Categorical(5).loss(logits, smooth))
    torch.testing.assert_close(loss, functional.cross_entropy(logits, smooth))


def test_uncertain_rows_are_soft_left_out_or_a_class() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(3, 2), torch.tensor([0, -1, 1])
    log_p = logits.log_softmax(1)
    soft = Categorical(2).losses(logits, uncertain_labels(y, 2, mark=-1, strategy="soft"))
    torch.testing.assert_close(soft[1], -log_p[1].mean())
    out = Categorical(2).loss(logits, uncertain_labels(y, 2, mark=-1, strategy="ignore"))
    torch.testing.assert_close(out, -(log_p[0, 0] + log_p[2, 1]) / 2)
    three = torch.randn(3, 3)
    own = Categorical(3).loss(three, uncertain_labels(y, 2, mark=-1, strategy="class"))
    torch.testing.assert_close(own, functional.cross_entropy(three, torch.tensor([0, 2, 1])))


def test_what_is_wrong_is_reported() -> None:
    with pytest.raises(
        BadValueError,
        match="Categorical: `n_classes` must be an integer of "
        r"at least 2, got 1\. Use n_classes=2",
    ):
        Categorical(1)
    with pytest.raises(
        BadValueError,
        match=r"`label_smoothing` .*, got -0\.1\. Divide "
        "percentages by 100",
    ):
        Categorical(2, label_smoothing=-0.1)
    with pytest.raises(
        BadValueError,
        match="Categorical: `form` must be 'all' or 'others', "
        r"got 'some'\. Use form='all'",
    ):
        Categorical(2, form="some")  # type: ignore[arg-type]
