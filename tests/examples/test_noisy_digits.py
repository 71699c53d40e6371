from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from dubito.data import Columns, read
from dubito.decide import Policy
from dubito.doubt import decompose_uncertainty
from dubito.learn.passes import seeded
from dubito.measure import log_loss
from examples.noisy_digits import (
    SWAPPED,
    TrainedDemo,
    _digit_parts,
    _trained_network,
    main,
    train_demo,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo") / "new"


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return []


@pytest.fixture(scope="module")
def demo(folder: Path, lines: list[str]) -> TrainedDemo:
    before = torch.get_num_threads(), torch.get_rng_state()
    found = train_demo(folder, lines.append)
    assert torch.get_num_threads() == before[0]
    assert torch.get_rng_state().equal(before[1])
    return found


def test_the_story_is_true(demo: TrainedDemo, lines: list[str]) -> None:
    parts = _digit_parts()
    assert demo.test.labels is not None
    assert (demo.test.labels == parts.test.labels.numpy()).all()
    calibrated = demo.policy.calibrator.transform(demo.test.logits)
    before, after = (log_loss(demo.test.labels, one) for one in (demo.test.logits, calibrated))
    assert after < before / 2
    story = "\n".join(lines)
    assert f"{before:8.4f} {after:8.4f}" in story
    uncertainty, is_kind = decompose_uncertainty(demo.members), parts.test.is_swapped_class
    assert uncertainty.aleatoric[is_kind].mean() > 2 * uncertainty.aleatoric[~is_kind].mean()
    assert f"{uncertainty.aleatoric[is_kind].mean():17.3f}" in story
    sent = ((demo.test.logits, demo.test.features), (demo.ood.outputs, demo.ood.features))
    known, unknown = (demo.policy.decide(*part).is_rejected.mean() for part in sent)
    # Half of the unknown digits, give or take how a processor rounds while the network is trained.
    assert unknown > max(0.4, 8 * known)
    assert f"{100 * unknown:.1f} %" in story
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


def test_the_script_writes_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["noisy_digits.py", str(tmp_path)])
    main()
    assert "AUROC of the loss for swapped labels" in capsys.readouterr().out
    assert "Digits, trained with noisy labels" in (tmp_path / "report.html").read_text()
