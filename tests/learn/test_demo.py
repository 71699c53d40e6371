from pathlib import Path

import numpy as np
import pytest
import torch

from dubito.data import Columns, read
from dubito.decide import Policy
from dubito.doubt import decompose_uncertainty
from dubito.learn.digits import TrainedDemo, _digit_parts, train_demo
from dubito.measure import log_loss


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "new"


@pytest.fixture(scope="module")
def told() -> list[str]:
    return []


@pytest.fixture(scope="module")
def demo(folder: Path, told: list[str]) -> TrainedDemo:
    before = torch.get_num_threads(), torch.get_rng_state()
    found = train_demo(folder, told.append)
    assert torch.get_num_threads() == before[0]
    assert torch.get_rng_state().equal(before[1])
    return found


def test_the_story_is_true(demo: TrainedDemo, told: list[str]) -> None:
    parts = _digit_parts()
    assert demo.test.labels is not None
    assert (demo.test.labels == parts.test.labels.numpy()).all()
    honest = demo.policy.calibrator.transform(demo.test.logits)
    before, after = (log_loss(demo.test.labels, one) for one in (demo.test.logits, honest))
    assert after < before / 2
    story = "\n".join(told)
    assert f"{before:8.4f} {after:8.4f}" in story
    doubt, is_kind = decompose_uncertainty(demo.members), parts.test.is_swapped_class
    assert doubt.aleatoric[is_kind].mean() > 2 * doubt.aleatoric[~is_kind].mean()
    assert f"{doubt.aleatoric[is_kind].mean():17.3f}" in story
    asked = demo.policy.decide(demo.ood.outputs, demo.ood.features).is_rejected.mean()
    assert asked > 0.5
    assert f"{asked:7.1%}" in story
    assert "Every prediction for an 8 or a 9 is wrong: the network does not know" in story


def test_everything_is_in_the_folder(demo: TrainedDemo, folder: Path) -> None:
    names = {"decisions", "policy", "ood", "test", "validation"}
    assert {path.stem for path in folder.iterdir()} == names
    columns = Columns(label="label", logits="logit_*", features="feature_*")
    test = read(folder / "test.parquet", columns)
    assert len(test) == len(demo.test.batch) == 373
    assert len(demo.validation.batch) == 370
    found = Policy.load(folder / "policy.json").decide(test.outputs, test.features)
    assert (found.action == demo.policy.decide(demo.test.logits, demo.test.features).action).all()
    assert np.mean(found.is_rejected) < 0.2
