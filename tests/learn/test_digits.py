import numpy as np
import torch
from sklearn.datasets import load_digits

from dubito.learn.digits import SWAPPED, _digit_parts, _trained_network
from dubito.learn.layers import seeded


def test_parts_hold_every_digit_once_and_ood_inputs_apart() -> None:
    parts = _digit_parts()
    labels = np.concatenate([part.labels.numpy() for part in parts])
    assert (np.bincount(labels) == np.bincount(load_digits().target)).all()
    assert all((part.labels < 8).all() for part in parts[:3])
    assert set(parts.ood.labels.tolist()) == {8, 9}
    assert parts.test.images.shape == (373, 1, 8, 8)
    assert 0 <= parts.test.images.min() < parts.test.images.max() <= 1
    assert len(np.unique(torch.cat([part.images for part in parts]).flatten(1), axis=0)) == 1797
    expected = np.isin(parts.test.labels, [0, 1, 3, 5, 6, 7])
    assert (parts.test.is_swapped_class == expected).all()


def test_training_is_seeded_and_swaps_labels() -> None:
    train = _digit_parts().train
    models = []
    for _ in range(2):
        with seeded(0):
            model, noisy, is_flipped = _trained_network(train, n_epochs=2)
        models.append(model.state_dict())
    assert all(one.equal(models[1][name]) for name, one in models[0].items())
    assert (is_flipped == (noisy != train.labels).numpy()).all()
    assert {tuple(sorted(pair)) for pair in zip(noisy[is_flipped].tolist(),
            train.labels[is_flipped].tolist(), strict=True)} == set(SWAPPED)  # fmt: skip
    assert 0.1 < is_flipped[train.is_swapped_class].mean() < 0.3
