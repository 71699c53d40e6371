"""Where a report comes from."""

from dubito.report.blocks import Code, Facts, Text
from dubito.report.sections.notable import computing
from dubito.report.summary import Provenance


def test_facts_then_the_command() -> None:
    found = Provenance("abc", 7, "dubito demo", (("dubito", "1"), ("numpy", "2")))
    facts, text, code = computing(found, (("rows", "3"),)).blocks
    assert facts == Facts(
        (
            ("rows", "3"),
            ("fingerprint of the rows", "abc"),
            ("seed of all that is drawn", "7"),
            ("versions", "dubito 1, numpy 2"),
        )
    )
    assert (text, code) == (Text("To make it again:"), Code("dubito demo"))


def test_without_a_command_there_is_none() -> None:
    assert len(computing(Provenance("abc", 0, None, ()), ()).blocks) == 1
