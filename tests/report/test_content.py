"""Every block has a place in the template."""

from typing import get_args

from markupsafe import Markup

from dubito.report import content
from dubito.report.content import _asset


def test_every_kind_of_block_has_a_place_in_the_template() -> None:
    template = _asset("blocks.html.j2")
    kinds = {block.__name__.lower() for block in get_args(content.Block) if block is not Markup}
    assert len(kinds) == 8
    assert content.Text("text").kind == "text"
    assert all(f'block.kind == "{kind}"' in template for kind in kinds)


def test_the_first_column_is_text_by_default() -> None:
    assert content.Table("caption", ("a", "b"), (("x", "1"),)).texts == (0,)
    assert content.Verdict("Fine.", ()).mood == "neutral"
