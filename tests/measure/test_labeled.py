import pytest

from dubito import TopLabel
from dubito.errors import BadTypeError, MissingLabelsWarning
from dubito.measure import log_loss
from dubito.measure.state import labeled_batch


def test_labels_or_top_labels_are_needed() -> None:
    assert len(labeled_batch([0, 1], [0.2, 0.8], None, "metric")) == 2
    assert len(labeled_batch(None, TopLabel([0.5], [1]), None, "metric")) == 1
    with pytest.raises(BadTypeError, match="metric: `y_true` must be the labels"):
        labeled_batch(None, [0.2, 0.8], None, "metric")


def test_the_warning_of_missing_labels_points_at_the_caller() -> None:
    with pytest.warns(MissingLabelsWarning, match="log_loss: 1 of 3 rows") as caught:
        log_loss([0, None, 1], [0.2, 0.8, 0.9])
    assert caught[0].filename == __file__
