import re

import pytest

from dubito.cli.demo import demo


def test_the_demo_tells_what_is_wrong_and_what_to_try(capsys: pytest.CaptureFixture[str]) -> None:
    demo()
    told = capsys.readouterr().out
    assert "Over-confident. It says 95.4% and is right 87.1% of the time" in told
    assert "never seen" in told
    assert "dubito audit FILE" in told
    assert "Log loss falls by" in told
    before, after = map(float, re.findall(r"log loss +([\d.]+) +([\d.]+)", told)[-1])
    assert after < 0.36 < 0.6 < before
    assert max(len(line) for line in told.splitlines()) <= 90
