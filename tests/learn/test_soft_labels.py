from typing import Any

import pytest
import torch

from dubito.errors import BadValueError
from dubito.learn import smooth_labels, uncertain_labels


def test_both_forms_are_as_they_are_named() -> None:
    y = torch.tensor([2, 0])
    everywhere = smooth_labels(y, 4, 0.4)
    assert everywhere[0].tolist() == pytest.approx([0.1, 0.1, 0.7, 0.1])
    others = smooth_labels(y, 4, 0.3, form="others")
    assert others[1].tolist() == pytest.approx([0.7, 0.1, 0.1, 0.1])


@pytest.mark.parametrize("form", ["all", "others"])
@pytest.mark.parametrize("epsilon", [0.0, 0.1, 1.0])
def test_rows_are_distributions(form: Any, epsilon: float) -> None:
    shares = smooth_labels(torch.tensor([[0, 1], [2, 2]]), 3, epsilon, form)
    assert shares.shape == (2, 3, 2)
    torch.testing.assert_close(shares.sum(1), torch.ones(2, 2))
    assert (shares >= 0).all()


def test_label_probabilities_are_smoothed_too() -> None:
    soft = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    assert smooth_labels(soft, 2, 0.2).tolist()[0] == pytest.approx([0.3, 0.7])
    assert smooth_labels(soft, 2, 0.2, "others").tolist()[0] == pytest.approx([0.35, 0.65])


def test_the_three_ways_of_uncertainty() -> None:
    y = torch.tensor([1, 9, 0])
    assert uncertain_labels(y, 2, mark=9).tolist() == [[0, 1], [0.5, 0.5], [1, 0]]
    out = uncertain_labels(y, 2, mark=9, strategy="ignore")
    assert out[1].isnan().all()
    assert out[[0, 2]].tolist() == [[0, 1], [1, 0]]
    own = uncertain_labels(y, 2, mark=9, strategy="class")
    assert own.tolist() == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert y.tolist() == [1, 9, 0]


Y = torch.tensor([0, 1])
BAD: list[tuple[Any, str]] = [
    (
        lambda: smooth_labels(Y, 2, 1.5),
        r"`epsilon` .*, got 1\.5\. Divide percentages by 100",
    ),
    (
        lambda: smooth_labels(Y, 2, 0.5, form="some"),  # type: ignore[arg-type]
        r"`form` .*, got 'some'\. Use form='all'",
    ),
    (
        lambda: smooth_labels(Y, 1, 0.5),
        r"`n_classes` .*, got 1\. Use n_classes=2",
    ),
    (
        lambda: uncertain_labels(Y, 2, mark=-1, strategy="none"),  # type: ignore[arg-type]
        r"`strategy` .*, got 'none'\. Use strategy='soft'",
    ),
    (
        lambda: uncertain_labels(Y.float(), 2, mark=-1),
        r"`y` .*, got torch\.float32\. Call \.long\(\)",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        call()
