"""Blocks hold what is shown, and say what kind they are."""

from typing import get_args

from markupsafe import Markup

from dubito.report import blocks
from dubito.report.page import _asset


def test_every_kind_of_block_has_a_place_in_the_template() -> None:
    template = _asset("blocks.html.j2")
    kinds = {block.kind for block in get_args(blocks.Block) if block is not Markup}
    assert len(kinds) == 8
    assert all(f'block.kind == "{kind}"' in template for kind in kinds)


def test_the_first_column_is_words_unless_told_otherwise() -> None:
    assert blocks.Table("caption", ("a", "b"), (("x", "1"),)).texts == (0,)
    assert blocks.Verdict("Fine.", ()).mood == "neutral"
