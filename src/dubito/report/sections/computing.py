"""How it was computed, and how to compute it again."""

from __future__ import annotations

from dubito.report.blocks import Block, Code, Facts, Section, Text
from dubito.report.provenance import Provenance

__all__ = ["computing"]


def computing(provenance: Provenance, facts: tuple[tuple[str, str], ...]) -> Section:
    """Return where the report comes from; `facts` are what this kind of report has to add."""
    versions = ", ".join(f"{name} {number}" for name, number in provenance.versions)
    pairs = (
        *facts,
        ("fingerprint of the rows", provenance.fingerprint),
        ("seed of all that is drawn", f"{provenance.seed}"),
        ("versions", versions),
    )
    blocks: list[Block] = [Facts(pairs)]
    if provenance.command is not None:
        blocks += [Text("To make it again:"), Code(provenance.command)]
    return Section("computing", "How it was computed", tuple(blocks))
