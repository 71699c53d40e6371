import subprocess
import sys

import pytest


@pytest.mark.slow
def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "dubito", "--version"]
    assert subprocess.run(command, capture_output=True, text=True).stdout.startswith("dubito ")
