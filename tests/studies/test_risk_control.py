"""The study of risk control prints what each procedure keeps."""

import pytest

from studies.risk_control import table


@pytest.mark.slow
@pytest.mark.parametrize("is_cost", [False, True])
def test_more_rows_are_kept_than_before_and_no_fewer_than_by_the_reference(is_cost: bool) -> None:
    lines = table(is_cost, sizes=(200,), n_draws=60)
    before, reference, now, oracle, *broken = (cell for cell in lines[3].split()[1:])
    assert float(before) < float(now) < float(oracle)
    assert float(now) >= 0.95 * float(reference)
    assert len(broken) == 3
    assert ", within 5% and three standard errors (" in lines[-1]
