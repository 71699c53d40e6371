"""The table of OOD scores is printed, written, and matches the stored one."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from studies import ood

DOCS = Path(__file__).parents[2] / "docs" / "ood.txt"


def figures(text: str) -> list[float]:
    """Return all numbers of a text."""
    return [float(one.replace(",", "")) for one in re.findall(r"[+-]?\d[\d,]*\.?\d*", text)]


@pytest.mark.slow
def test_the_stored_tables_match_the_printed_ones(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "table.txt"
    monkeypatch.setattr(sys, "argv", ["ood", "-o", str(path)])
    ood.main()
    printed = capsys.readouterr().out
    assert printed == path.read_text()
    # Of the sample that ships: a network trained elsewhere may differ.
    shown, found = (text.split("\n\n\n")[0] for text in (DOCS.read_text(), printed))
    assert re.sub(r"[\d.,+-]+", "#", shown) == re.sub(r"[\d.,+-]+", "#", found)
    assert figures(shown) == pytest.approx(figures(found), abs=1e-3)


@pytest.fixture(scope="module")
def sample() -> ood.Setting:
    return ood.sample_setting()


def test_auroc_equals_that_of_scikit_learn(sample: ood.Setting) -> None:
    energy = ood.scores(sample, {})["energy"]
    of = sample.ood["digits"]
    found = ood.detection([energy(sample.known)] * 2, [energy(of)] * 2)
    labels = np.repeat([0, 1], [4000, 1000])
    expected = roc_auc_score(labels, np.concatenate([energy(sample.known), energy(of)]))
    assert found.auroc == pytest.approx(expected, abs=1e-12)
    assert (found.gain, found.error) == (0.0, 0.0)
    # FPR95 as papers define it: OOD images below the score that 95 % of known ones do not exceed.
    limit = np.quantile(energy(sample.known), 0.95, method="inverted_cdf")
    assert found.fpr95 == pytest.approx((energy(of) <= limit).mean(), abs=1e-12)


@pytest.mark.slow
def test_a_score_chosen_on_one_kind_beats_least_confidence_on_the_others(
    sample: ood.Setting,
) -> None:
    found = ood.choices(sample, ood.fitted_scores(sample))
    assert len(found) == 6
    for one in found:
        assert one.gain > 0.02, one
        assert one.gain - ood.Z_95 * one.error > 0, one
    # Chosen on digits and measured on corrupted images, the interval includes smaller gains.
    assert sum(one.gain - ood.Z_95 * one.error > ood.WORTHWHILE for one in found) == 5


@pytest.mark.slow
def test_digits_that_were_not_learned_are_detected() -> None:
    setting = ood.digits_setting()
    assert set(setting.labels) == set(range(8))
    # Logits are those of the last layer.
    rows = setting.known.features @ setting.weight.T + setting.bias
    assert np.allclose(rows, setting.known.logits.array)
    fitted = ood.fitted_scores(setting)
    score = ood.scores(setting, fitted)["relative Mahalanobis"]
    for of in setting.ood.values():
        flags = np.repeat([0, 1], [setting.known.logits.n_rows, of.logits.n_rows])
        both = np.concatenate([score(setting.known), score(of)])
        assert roc_auc_score(flags, both) > 0.9
