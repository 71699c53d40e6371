"""Tables wherever they are: each a name, a schema, and a stream of Arrow record batches."""

from dubito.data.sources.opening import open_source
from dubito.data.sources.source import AbstractSource, Span, named_if_broken

__all__ = ["AbstractSource", "Span", "named_if_broken", "open_source"]
