"""The study of textbook claims: figures by hand, and a quick run."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from dubito import Probabilities
from studies import textbook_claims as study


@pytest.mark.slow
def test_it_runs_and_writes_a_table_per_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study.main(["--quick", "--cache", str(tmp_path / "cache"), "-o", str(tmp_path)])
    printed = capsys.readouterr().out
    assert all(f"**{part}**" in printed for part in study.PARTS)
    assert (tmp_path / "textbook_claims.png").stat().st_size > 10_000


@pytest.mark.parametrize("model", study.MODELS)
def test_models_can_learn_from_a_dozen_rows(model: str) -> None:
    x = np.random.default_rng(0).normal(size=(12, 8))
    x[:6, 0] += 5
    said = study.MODELS[model]().fit(x, np.arange(12) < 6).predict_proba(x)[:, 1]
    assert said[:6].min() > said[6:].max()


def test_parts_share_noise_only_if_asked() -> None:
    x, y = study.two_parts(0, 20_000, 0.7)
    within = np.asarray(np.corrcoef((x - np.where(y == 1, 0.3, -0.3)[:, None]).T))
    np.testing.assert_allclose(within[0, 1:], 0.7, atol=0.03)
    x, y = study.two_parts(0, 20_000, 0.0)
    within = np.asarray(np.corrcoef((x - np.where(y == 1, 0.3, -0.3)[:, None]).T))
    np.testing.assert_allclose(within[0, 1:], 0.0, atol=0.03)


def test_over_confidence_is_confidence_minus_accuracy() -> None:
    setting = study.Setting("Naive Bayes: overfitting and over-confidence", 3, 10)
    found = study.overconfident(setting)
    x, y = study.two_parts(3, 4_000, 0.7)
    _, new_x, _, new_y = train_test_split(x, y, train_size=0.5, stratify=y, random_state=3)
    known_x, _, known_y, _ = train_test_split(x, y, train_size=0.5, stratify=y, random_state=3)
    model = GaussianNB().fit(known_x, known_y)
    confidence = model.predict_proba(new_x).max(axis=1).mean()
    gap = confidence - (model.predict(new_x) == new_y).mean()
    assert found["correlated features|confidence minus accuracy"] == pytest.approx(gap)
    assert gap > 0.2


def test_probabilities_have_a_floor() -> None:
    found = study.floored(Probabilities([[1.0, 0.0]])).array
    assert found.tolist()[0] == pytest.approx([1 - 1e-6, 1e-6], rel=1e-5)
