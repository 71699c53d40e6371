"""The sample predictions are complete, consistent and over-confident."""

from importlib import resources

import numpy as np
import numpy.typing as npt
import pytest

from dubito.data import FashionMNISTSample, load_fashion_mnist, samples

N_CLASSES = 8
N_FEATURES = 84
ROWS = {
    "validation": 4000,
    "test": 4000,
    "unseen_classes": 1000,
    "digits": 1000,
    "corrupted": 1000,
}
LABELED = ("validation", "test", "corrupted")

each_set = pytest.mark.parametrize("name", ROWS)
each_labeled_set = pytest.mark.parametrize("name", LABELED)


@pytest.fixture(scope="module")
def sample() -> FashionMNISTSample:
    return load_fashion_mnist()


def confidence_and_accuracy(
    logits: npt.NDArray[np.float32], labels: npt.NDArray[np.int8]
) -> tuple[float, float]:
    exponentials = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence = 1 / exponentials.sum(axis=1)
    return float(confidence.mean()), float((logits.argmax(axis=1) == labels).mean())


@each_set
def test_logits_and_features_have_their_shapes_and_types(
    sample: FashionMNISTSample, name: str
) -> None:
    logits = getattr(sample, f"{name}_logits")
    features = getattr(sample, f"{name}_features")
    assert (logits.shape, logits.dtype) == ((ROWS[name], N_CLASSES), np.float32)
    assert (features.shape, features.dtype) == ((ROWS[name], N_FEATURES), np.float16)


@each_set
def test_logits_and_features_are_finite(sample: FashionMNISTSample, name: str) -> None:
    assert np.isfinite(getattr(sample, f"{name}_logits")).all()
    assert np.isfinite(getattr(sample, f"{name}_features")).all()
    assert (getattr(sample, f"{name}_features") >= 0).all()


@each_labeled_set
def test_labels_are_column_numbers(sample: FashionMNISTSample, name: str) -> None:
    labels = getattr(sample, f"{name}_labels")
    assert (labels.shape, labels.dtype) == ((ROWS[name],), np.int8)
    assert np.unique(labels).tolist() == list(range(N_CLASSES))


def test_last_layer_has_its_shape_and_type(sample: FashionMNISTSample) -> None:
    assert sample.weight.shape == (N_CLASSES, N_FEATURES)
    assert sample.bias.shape == (N_CLASSES,)
    assert sample.weight.dtype == sample.bias.dtype == np.float32


@each_set
def test_logits_are_the_last_layer_of_the_features(sample: FashionMNISTSample, name: str) -> None:
    features = getattr(sample, f"{name}_features").astype(np.float64)
    rebuilt = features @ sample.weight.T + sample.bias
    # Rounding to float16 moves each feature by at most 2 ** -11 of itself.
    tolerance = features @ np.abs(sample.weight).T * 2.0**-11 + 1e-3
    assert (np.abs(rebuilt - getattr(sample, f"{name}_logits")) <= tolerance).all()


def test_network_is_over_confident_on_the_test_half(sample: FashionMNISTSample) -> None:
    confidence, accuracy = confidence_and_accuracy(sample.test_logits, sample.test_labels)
    assert accuracy > 0.8
    assert confidence - accuracy > 0.02


def test_halves_are_different_rows_and_each_class_has_a_thousand(
    sample: FashionMNISTSample,
) -> None:
    halves = (sample.validation_features, sample.test_features)
    validation, test = ({row.tobytes() for row in half} for half in halves)
    assert not validation & test
    labels = np.concatenate((sample.validation_labels, sample.test_labels))
    assert np.bincount(labels).tolist() == [1000] * N_CLASSES


def test_corrupted_rows_are_the_first_test_rows_made_worse(sample: FashionMNISTSample) -> None:
    assert (sample.corrupted_labels == sample.test_labels[:1000]).all()
    assert (sample.corrupted_features != sample.test_features[:1000]).any(axis=1).all()
    _, clean = confidence_and_accuracy(sample.test_logits[:1000], sample.corrupted_labels)
    _, corrupted = confidence_and_accuracy(sample.corrupted_logits, sample.corrupted_labels)
    assert corrupted < clean - 0.05


def test_classes_and_meta_say_what_the_file_holds(sample: FashionMNISTSample) -> None:
    assert len(sample.classes) == N_CLASSES
    assert sample.classes[0] == "T-shirt/top"
    assert sample.meta["train_rows"] == 16_000
    curve = sample.meta["test_log_loss_by_epoch"]
    assert len(curve) == sample.meta["epochs"]
    assert curve[-1] > min(curve) + 0.05


def test_each_load_is_a_fresh_copy(sample: FashionMNISTSample) -> None:
    other = load_fashion_mnist()
    assert not np.shares_memory(other.test_logits, sample.test_logits)


def test_file_is_small() -> None:
    path = resources.files(samples).joinpath("fashion_mnist.npz")
    assert len(path.read_bytes()) <= 2_000_000


def test_public_names_are_sorted() -> None:
    assert samples.__all__ == sorted(samples.__all__)
