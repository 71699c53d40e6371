"""The study of noise runs, and what it finds of made data is what must be found."""

from pathlib import Path

import numpy as np
import pytest

from dubito import Probabilities
from studies.input_noise.reporting import known_entropy
from studies.input_noise.study import Models, detection_auroc, main, retained_error


def test_it_prints_tables_of_figures_that_can_be(
    tmp_path: Path, tiny_fashion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = ["--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", "--folder", str(tiny_fashion), *folders])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    # Five kinds of noise in all, three scores, three sets.
    n_rows = [15, 5, 10, 10, 9, 7, 9, 5 * 2 + 3 * 2]
    assert len(lines) == sum(n_rows) + 2 * len(n_rows)
    assert "Of 16 cases in the last table, lowest mean error on the retained rows: " in printed
    assert (tmp_path / "out" / "input_noise.png").stat().st_size > 10_000

    paths = list((tmp_path / "input_noise-quick").glob("*.npz"))
    assert len(paths) == 3
    for path in paths:
        with np.load(path) as found:
            surprised = found["learned"][:, 0]
            assert surprised[:, :2] == pytest.approx(found["input_errors"][:, 3])
            assert surprised[:, 4:] == pytest.approx(found["input_aurocs"][:, 2])
            likelihoods = found["likelihoods"][0]
        assert (np.diff(likelihoods) < 0).all()  # noise makes inputs less likely, level by level


def test_density_notices_far_inputs_and_entropy_swapped_labels() -> None:
    """Of two normal classes far apart, all of this is known."""
    rng = np.random.default_rng(0)
    y = np.arange(600) % 2
    x = rng.normal(size=(600, 2)) + 8 * y[:, np.newaxis]
    models = Models.fit(x, y)
    far = x + rng.normal(size=x.shape) * 20
    assert detection_auroc(models.uncertainties(x), models.uncertainties(far))[2] > 0.9
    swapped = np.where(rng.random(600) < 0.3, 1 - y, y)
    found = Models.fit(x, swapped).uncertainties(x)[0].mean()
    assert found == pytest.approx(known_entropy(0.3), abs=0.03)


def test_kept_rows_are_those_of_lowest_uncertainty() -> None:
    y = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    said = Probabilities(np.tile([0.7, 0.3], (10, 1)))  # wrong on the second half
    score = np.array([9, 0, 1, 2, 3, 4, 5, 6, 7, 8.0])
    assert retained_error(y, said, score) == pytest.approx(4 / 8)
    assert retained_error(y, said, np.zeros(10)) == pytest.approx(5 / 10)
