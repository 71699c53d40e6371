"""The study of more data runs, and decomposes uncertainty by its definition."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import roc_auc_score

from dubito import Members
from studies.more_data.reporting import KINDS, METHODS, PAIR, WAYS
from studies.more_data.study import evaluate, grouped, main, split


def members(n_passes: int, n_rows: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(10), (n_passes, n_rows))


def test_it_prints_tables_of_doubts_that_can_be(
    fashion_mnist_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--folder", str(fashion_mnist_folder), "--cache", str(tmp_path)]
    main(["--quick", *places, "-o", str(tmp_path / "out")])
    printed = capsys.readouterr().out
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    assert lines[0] == "|  | 64 rows | 256 rows |"
    assert len(lines) == 2 * (8 + 2) + (6 + 2) + 3 * (8 + 2) + (12 + 2)
    assert "The true entropy of the swapped pair's labels is 0.611 nats" in printed
    assert (tmp_path / "out" / "more_data.png").stat().st_size > 10_000

    paths = list((tmp_path / "more_data-quick").glob("*.npz"))
    assert len(paths) == 2
    for path in paths:
        found = np.load(path)
        total, aleatoric, epistemic = np.moveaxis(found["uncertainties"], -1, 0)
        assert total.shape == (len(WAYS), len(METHODS), len(KINDS))
        assert total == pytest.approx(aleatoric + epistemic, abs=1e-6)
        assert total.max() <= np.log(10) + 1e-6
        # Aleatoric uncertainty is a mean over members, and the three share the same ten.
        assert aleatoric[:, 0] == pytest.approx(aleatoric[:, 2], abs=1e-6)
        assert aleatoric[:, 1] == pytest.approx(aleatoric[:, 2], abs=1e-6)
        assert (epistemic[:, 1] < epistemic[:, 2]).all()
        losses = found["figures"][..., 2]
        assert (losses[:, 0] > losses[:, 1]).all()
        assert (losses[:, 1] > losses[:, 2]).all()


def test_uncertainty_is_decomposed_by_entropies() -> None:
    array = members(5, 40, seed=0)
    total = entropy(array.mean(0), axis=1)
    aleatoric = entropy(array, axis=2).mean(0)
    expected = np.stack([total, aleatoric, total - aleatoric])
    assert split(Members(array)) == pytest.approx(expected, abs=1e-9)
    alone = entropy(array[0], axis=1)
    assert split(Members(array[:1])) == pytest.approx(np.stack([alone, alone, 0 * alone]))


def test_doubts_are_by_what_images_show_and_figures_by_their_labels() -> None:
    known, ood = members(3, 60, seed=1), members(3, 30, seed=2)
    shown = np.arange(60) % 10
    labels = (shown + 1) % 10
    found = evaluate(Members(known), Members(ood), shown, labels)
    assert found.figures[0] == (known.mean(0).argmax(1) == labels).mean()
    of_pair = entropy(known.mean(0), axis=1)[np.isin(shown, PAIR)]
    assert found.uncertainties[0, 0] == pytest.approx(of_pair.mean())
    epistemic = [split(Members(one))[2] for one in (known, ood)]
    assert found.uncertainties[-1, 2] == pytest.approx(epistemic[1].mean())
    expected = roc_auc_score(np.repeat([0, 1], [60, 30]), np.concatenate(epistemic))
    assert found.aurocs[2] == pytest.approx(expected)


def test_smaller_ensembles_share_no_member() -> None:
    array = members(10, 3, seed=3)
    found = grouped(Members(array), 5)
    assert [one.n_passes for one in found] == [5, 5]
    assert np.concatenate([one.array for one in found]) == pytest.approx(array)
