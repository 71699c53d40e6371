"""Each class is in one of the groups that are reported."""

from studies.more_data.reporting import GROUPS


def test_all_classes_are_of_one_kind() -> None:
    assert sorted(one for classes in GROUPS.values() for one in classes) == list(range(10))
