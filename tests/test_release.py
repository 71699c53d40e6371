import re

import dubito
from tools.release import EXTRA_SMOKE, EXTRAS, PROJECT, PYTHONS, ROOT, TESTS, lowest_pins


def test_metadata_agree() -> None:
    assert f"\nversion: {dubito.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    named = {
        one.removeprefix("Programming Language :: Python :: ") for one in PROJECT["classifiers"]
    }
    assert set(PYTHONS) <= named
    assert (ROOT / "src/dubito/py.typed").exists()


def test_the_lowest_dependencies_are_those_of_the_metadata() -> None:
    assert lowest_pins(["numpy>=2.1", "uvloop >= 0.19; sys_platform != 'win32'"]) == [
        "numpy==2.1",
        "uvloop==0.19",
    ]
    pins = lowest_pins(PROJECT["dependencies"])
    assert all(re.fullmatch(r"[a-z0-9-]+==[\d.]+", pin) for pin in pins), pins


def test_every_extra_is_tried_out() -> None:
    assert (
        set(EXTRAS) == set(EXTRA_SMOKE) == set(PROJECT["optional-dependencies"]) - {"dev", "docs"}
    )


def test_the_tests_of_the_matrix_exist() -> None:
    assert [path for path in TESTS if not (ROOT / path).exists()] == []
