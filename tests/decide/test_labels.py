"""Plain labels: codes, a warning of missing ones, and no probabilities."""

from typing import Any

import pytest

from dubito import Probabilities
from dubito.decide.priors import plain_codes
from dubito.errors import BadValueError, MissingLabelsWarning

OUTPUTS = Probabilities([[0.5, 0.5]] * 3, classes=["cat", "dog"])


def test_names_become_codes_and_missing_ones_warn() -> None:
    with pytest.warns(MissingLabelsWarning) as caught:
        codes = plain_codes(["dog", None, "cat"], OUTPUTS, "y", "f", stacklevel=1)
    assert codes.tolist() == [1, -1, 0]
    assert str(caught[0].message) == "f: 1 of 3 rows have no label and were left out."
    assert caught[0].filename == __file__


@pytest.mark.parametrize(("y", "got"), [(None, "None"), ([[0.5, 0.5]] * 3, "label probabilities")])
def test_label_probabilities_and_no_labels_raise(y: Any, got: str) -> None:
    with pytest.raises(BadValueError) as caught:
        plain_codes(y, OUTPUTS, "y", "f", stacklevel=1)
    message = f"`y` must be one label per row, got {got}. Pass the most probable label"
    assert message in str(caught.value)
