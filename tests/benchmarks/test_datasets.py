from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.datasets import (
    any_datasets,
    floored,
    generate_logits,
    real_datasets,
    small_datasets,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of the names and shapes that are expected, with a few rows each."""
    rng = np.random.default_rng(0)

    def p(*shape: int) -> Any:
        return rng.dirichlet(np.ones(shape[-1]), shape[:-1])

    y = rng.integers(0, 2, 8)
    logits = rng.normal(size=(8, 3)).astype(np.float16)
    both: Any = {
        "logits_val": logits,
        "labels_val": y,
        "logits_test": logits[:6],
        "labels_test": y[:6],
    }
    np.savez(tmp_path / "cifar10_densenet40_f16.npz", **both)
    np.savez(tmp_path / "eurosat_resnet18_f16.npz", logits_rgb=logits, logits_ms=logits, labels=y)
    np.savez(tmp_path / "cifar100_wrn16_first4000_logprob_f16.npz", logprobs=logits, labels=y)
    for name in ("cifar10_vgg16_keras", "20news_cleanlab_cv", "imdb_cleanlab_cv"):
        np.savez(tmp_path / f"{name}.npz", probs=np.eye(3)[y], labels=y)
    np.savez(tmp_path / "hpc_cv_yardstick.npz", probs=p(8, 4), labels=y)
    np.savez(tmp_path / "llama13b_mmlu16_10prompts.npz", probs=p(10, 8, 4), labels=y)
    games: Any = {}
    for name in ("nba_games", "nfl_games", "mlb_games", "nhl_games", "wnba_games", "governors"):
        games |= {f"{name}_p": rng.random(8), f"{name}_y": np.array([0, 1, 0.5, 1, 0, 1, 1, 0])}
    np.savez(tmp_path / "fivethirtyeight.npz", **games)
    return tmp_path


def test_twenty_five_sets_and_a_shift(folder: Path) -> None:
    sets = list(real_datasets(folder))
    assert [entry.is_shift for entry in sets] == [False] * 25 + [True]
    assert len({entry.name for entry in sets}) == 26
    shift = sets[-1]
    assert [part.size for part in shift.splits[0]] == [8, 6]
    assert next(entry for entry in sets if entry.name == "nfl").y.size == 7  # a tie is left out
    for entry in sets:
        assert np.allclose(np.exp(entry.logits).sum(axis=1), 1)
        assert entry.logits.min() > np.log(0.9e-12)


def test_any_folder_is_read_by_the_names_of_its_arrays(folder: Path) -> None:
    confidence, correct = np.array([[0.9, 0.0], [0.4, 1.0]]), np.array([[1, 0], [0, 1]])
    parts: Any = {
        f"{name}_{part}": values
        for part in ("train", "test")
        for name, values in {"confidence": confidence, "correct": correct}.items()
    }
    np.savez(folder / "cascade.npz", **parts)
    np.savez(folder / "many.npz", probs_cal=confidence, labels_cal=correct)
    np.savez(folder / "orphan.npz", probs=confidence)
    np.savez(folder / "X.npz", X=confidence)
    (folder / "text.npz").write_text("not an archive")
    datasets, left_out = any_datasets(folder)
    found = {entry.name: entry for entry in datasets}
    densenet = found["cifar10_densenet40_f16"]
    assert [part.tolist() for part in densenet.splits[0]] == [list(range(8)), list(range(8, 14))]
    assert "eurosat_resnet18_f16 rgb" in found
    assert found["fivethirtyeight nfl games"].y.size == 7  # a tie is left out
    assert len(found["llama13b_mmlu16_10prompts"].splits) == 10
    cascade = found["cascade"]
    assert [part.size for split in cascade.splits for part in split] == [2, 2, 2, 2]
    assert cascade.y.tolist() == [1, 0, 1, 0, 0, 1, 0, 1]
    assert np.exp(cascade.logits[:2, 1]) == pytest.approx([0.9, 0.4])
    assert left_out["many.npz"] == "probs_cal has several labels per row"
    assert left_out["orphan.npz"] == "probs has no labels or y"
    assert left_out["X.npz"] == "no class probabilities or logits"
    assert set(left_out) == {"many.npz", "orphan.npz", "X.npz", "text.npz"}


def test_halves_part_the_rows_and_stay_the_same() -> None:
    first, again = next(small_datasets()), next(small_datasets())
    assert len(first.splits) == 5
    for (fit, test), (same, _) in zip(first.splits, again.splits, strict=True):
        assert sorted([*fit, *test]) == list(range(first.y.size))
        assert np.array_equal(fit, same)


def test_a_certain_row_stays_finite() -> None:
    assert np.isfinite(floored(np.array([[0.0, -1e9]]))).all()


def test_generated_rows_do_not_depend_on_how_many_follow() -> None:
    few, many = generate_logits(1_000, 3), generate_logits(2_500, 3)
    assert np.array_equal(few[0], many[0][:1_000])
    assert np.array_equal(few[1], many[1][:1_000])
    assert few[0].dtype == np.float32
