"""The study of votes compares each vote with the single view, seed by seed."""

from pathlib import Path

import numpy as np
import pytest

from studies.votes import CASES, Voted, main, words


def test_quick_prints_every_vote(
    tiny_fashion: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--folder", str(tiny_fashion), "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", *places])
    printed = capsys.readouterr().out
    tables = [part for part in printed.split("\n\n") if part.startswith("| ")]
    assert [len(table.splitlines()) for table in tables] == [2 + 5, 2 + 5, *[2 + 8] * 4]
    assert (tmp_path / "out" / "votes.png").stat().st_size > 10_000
    assert {path.name for path in tmp_path.iterdir()} == {"out", "noisy_training-quick"}


def test_gains_are_paired_by_seed_and_put_into_words() -> None:
    single = np.array([0.80, 0.70, 0.90])
    accuracies = {"single view": single, "mode": single + 0.01, "mean probability": single - 0.02}
    accuracies["confidence"] = single + np.array([0.03, -0.04, 0.02])
    voted = Voted("faithful", 0.4, CASES[0], accuracies)
    assert voted.gain("mode").low == pytest.approx(0.01)
    assert voted.gain("confidence").low < 0 < voted.gain("confidence").high
    lines = words([voted]).splitlines()
    expected = (
        "mode better in 1 and worse in 0 of 1; mean probability better in 0 and worse in 1 of 1"
    )
    assert lines[2] == f"- {CASES[0].title}: {expected}."
    assert lines[3] == f"- {CASES[1].title}: nothing."
