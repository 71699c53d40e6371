from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Probabilities, audit
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import Audit, PixelShards

RNG = np.random.default_rng(0)


def maps(n: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return label maps with some pixels to ignore, and logits, channels first."""
    labels = [np.where(RNG.random((6, 9)) < 0.2, 255, RNG.integers(0, 4, (6, 9))) for _ in range(n)]
    return [(label, RNG.normal(0, 2, (4, 6, 9)).astype(np.float32)) for label in labels]


def flat(pairs: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    """Return labels and logits of all pixels that count, as plain rows."""
    y = np.concatenate([label.ravel() for label, _ in pairs])
    z = np.concatenate([np.moveaxis(logits, 0, -1).reshape(-1, 4) for _, logits in pairs])
    return y[y != 255], z[y != 255]


def test_pixels_are_audited_as_rows() -> None:
    pairs = maps(3)
    result = Audit.of(PixelShards(pairs), n_resamples=0)
    y, z = flat(pairs)
    expected = audit(y, Logits(z), n_resamples=0)
    assert result.n_rows == expected.n_rows
    assert result.n_missing == 3 * 54 - expected.n_rows
    for name, value in expected.figures.items():
        if name != "n_missing":
            assert result.figures[name] == pytest.approx(value, rel=1e-3), name
    assert result.log_loss == pytest.approx(expected.log_loss)
    assert result.expected_calibration_error == pytest.approx(expected.expected_calibration_error)


def test_batches_of_images_and_channels_last_are_the_same_pixels() -> None:
    pairs = maps(4)
    batch = [(np.stack([y for y, _ in pairs]), np.stack([z for _, z in pairs]))]
    last = [(y, np.moveaxis(z, 0, -1)) for y, z in pairs]
    losses = [
        Audit.of(shards, n_resamples=0).log_loss
        for shards in (PixelShards(pairs), PixelShards(batch), PixelShards(last, class_axis=-1))
    ]
    assert losses[0] == pytest.approx(losses[1])
    assert losses[0] == pytest.approx(losses[2])


def test_probabilities_are_declared() -> None:
    y = np.array([[0, 1]])
    p = np.array([[[0.9, 0.2]], [[0.1, 0.8]]])
    result = Audit.of(PixelShards([(y, p)], kind="probabilities"), n_resamples=0)
    rows = Probabilities([[0.9, 0.1], [0.2, 0.8]])
    assert result.log_loss == pytest.approx(audit([0, 1], rows, n_resamples=0).log_loss)


def test_one_map_at_a_time_is_held() -> None:
    alive: list[int] = []

    class Loader:
        def __iter__(self) -> Iterator[tuple[Any, Any]]:
            for k in range(50):
                alive.append(k)
                yield maps(1)[0]

    first = next(PixelShards(Loader()).parts())
    assert len(first()) == 54
    assert alive == [0]
    assert Audit.of(PixelShards(Loader()), n_resamples=0).n_missing > 0


def test_maps_that_do_not_fit_raise() -> None:
    labels, logits = maps(1)[0]
    with pytest.raises(BadValueError, match="class_axis=-1 for channels last"):
        PixelShards([(labels, logits)], class_axis=-1).sum(len)
    with pytest.raises(BadValueError, match="class_axis=-1 for channels last"):
        PixelShards([(labels, logits)], class_axis=7).sum(len)
    with pytest.raises(BadTypeError, match="must be a pair"):
        PixelShards([labels]).sum(len)  # type: ignore[list-item]
    with pytest.raises(BadValueError, match="'logits' or 'probabilities'"):
        PixelShards([(labels, logits)], kind="softmax").sum(len)
    with pytest.raises(BadTypeError, match="must be iterable more than once"):
        PixelShards(iter([(labels, logits)])).sum(len)
    with pytest.raises(BadValueError, match="class indices from 0 to 3"):
        PixelShards([(labels, logits)], ignore=None).sum(len)
