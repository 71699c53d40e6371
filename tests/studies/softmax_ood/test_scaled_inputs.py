"""Far away a network is certain; classes differ by their definition."""

import pytest
import torch

from studies.common.training import Recipe
from studies.softmax_ood.scaled_inputs import FACTORS, blobs, far_confidence


@pytest.mark.usefixtures("one_thread")
def test_far_directions_are_certain_in_the_end() -> None:
    """Hein et al.: along almost every direction a ReLU network's confidence goes to 1."""
    found = far_confidence(2, 300, Recipe(8, learning_rate=1e-2, batch_rows=32), seed=0)
    assert found.shape == (2, 1 + len(FACTORS))
    confidence, auroc = found
    assert confidence[-1] > 0.99
    assert confidence[1] < confidence[-1]
    # Directions as long as known rows are less confident than those; far away it is the reverse.
    assert confidence[1] < confidence[0]
    assert auroc[0] == 0.5
    assert auroc[1] > 0.5 > auroc[-1]


def test_blobs_differ_in_two_directions() -> None:
    found = blobs(6_000, 5, torch.Generator().manual_seed(0))
    means = [found.pixels[found.labels == label].mean(0) for label in range(3)]
    assert [round(float(one[:2].norm())) for one in means] == [3, 3, 3]
    assert max(float(one[2:].abs().max()) for one in means) < 0.1
