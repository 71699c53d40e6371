"""Fooling inputs are more confident than the noise they start from, and the pictures are drawn."""

from pathlib import Path

import pytest

from examples import fooling_inputs


@pytest.mark.slow
def test_noise_is_optimized_until_the_network_is_confident(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = fooling_inputs.main(tmp_path, n_epochs=30)
    assert (seen["fooling"].confidence >= seen["noise"].confidence - 1e-6).all()
    assert seen["fooling"].confidence.mean() > 0.99 > seen["noise"].confidence.mean()
    assert 0 <= seen["fooling"].images.min() <= seen["fooling"].images.max() <= 1
    for name in ("fooling", "rays", "patterns"):
        assert (tmp_path / f"{name}.png").stat().st_size > 10_000
    assert "rays through known: the limit is 1 for 100.0%" in capsys.readouterr().out
