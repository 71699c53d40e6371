"""Views are what they are called, votes are counted by hand, thresholds come from validation."""

import numpy as np
import pytest
import torch

from dubito import Members
from dubito.learn import UncertaintyAware
from studies.common.images import Images
from studies.common.networks import conv_net, seeded
from studies.noisy_pairs.view_votes import SINGLE, VIEWS, WAYS, seen, vote_accuracies

# The worked example of three views for class 0 and two surer ones for class 1; its label is 1.
CONFIDENCES = [0.55, 0.55, 0.55, 0.95, 0.95]
CERTAINTIES = [1.0, 1.0, 1.0, 9.0, 9.0]


def example(n_rows: int = 4) -> Members:
    """Views of some rows that are all alike."""
    tops = [[p, 1 - p] for p in CONFIDENCES[:3]] + [[1 - p, p] for p in CONFIDENCES[3:]]
    certainty = np.tile(np.array(CERTAINTIES)[:, np.newaxis], (1, n_rows))
    return Members(np.tile(np.array(tops)[:, np.newaxis], (1, n_rows, 1)), certainty=certainty)


def test_each_vote_is_as_counted_by_hand() -> None:
    labels = np.ones(4, dtype=np.int64)
    found = vote_accuracies((example(), labels), (example(), labels))
    expected = dict.fromkeys((SINGLE, "mode"), 0.0) | dict.fromkeys(WAYS, 1.0)
    expected["mode"] = 0.0
    assert found == expected | {"certainty 1 - sigmoid(s)": float(2 * 0.9 > 3 * 0.5)}


def test_thresholds_are_those_of_validation_labels() -> None:
    members, ones = example(), np.ones(4, dtype=np.int64)
    way = WAYS["confidence above a threshold"]
    assert way.threshold(members, ones) == pytest.approx(0.95)
    assert way.threshold(members, 1 - ones) == pytest.approx(0.55)


def test_without_certainty_nothing_votes_by_it() -> None:
    plain, labels = Members(example().array), np.ones(4, dtype=np.int64)
    assert not [
        way for way in vote_accuracies((plain, labels), (plain, labels)) if "certainty" in way
    ]


def test_five_views_are_seen_and_the_first_is_the_image_itself() -> None:
    seeded(0)
    network = conv_net(1, 2, 11).eval()
    images = Images(torch.rand(7, 1, 28, 28), torch.zeros(7, dtype=torch.long))
    likelihood = UncertaintyAware(10)
    members = seen(network, images, "mirrors", likelihood)
    assert members.array.shape == (5, 7, 10)
    with torch.no_grad():
        outputs = network(images.pixels)
        mirrored = network(images.pixels.flip(-1))
    assert members.certainty is not None
    assert members.certainty[0] == pytest.approx(likelihood.certainty(outputs).numpy())
    assert members.array[1] == pytest.approx(mirrored[:, :10].softmax(1).numpy(), abs=1e-6)
    assert all(len(views) == 5 for name, views in VIEWS.items() if name != "none")
