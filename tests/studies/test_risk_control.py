"""The study of risk control prints what each procedure keeps."""

import pytest

from studies.risk_control import guarantees, table


@pytest.mark.slow
@pytest.mark.parametrize("is_cost", [False, True])
def test_more_rows_are_kept_than_before_and_no_fewer_than_by_the_reference(is_cost: bool) -> None:
    lines = table(is_cost, sizes=(200,), n_draws=60)
    before, reference, now, oracle, *broken = (cell for cell in lines[3].split()[1:])
    assert float(before) < float(now) < float(oracle)
    assert float(now) >= 0.95 * float(reference)
    assert len(broken) == 3
    assert ", within 5% and three standard errors (" in lines[-1]


@pytest.mark.slow
def test_thresholds_of_any_loss_keep_their_guarantee() -> None:
    lines = guarantees(sizes=(200,), n_draws=60)
    for line, target in zip(lines[2:-1], (0.1, 1.0, 0.1, 0.1, 0.3), strict=True):
        n, stated, mean, *_ = line[20:].split()
        assert (int(n), float(stated)) == (200, target)
        assert 0 < float(mean) <= 1.1 * target
    assert lines[-1].startswith(
        "Mean risk (crc) within the target, risk above the target (ltt) within"
    )
