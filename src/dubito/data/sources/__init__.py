"""Tables wherever they are: each a name, a schema, and a stream of Arrow record batches."""

from dubito.data.sources.opening import open_source
from dubito.data.sources.source import BaseSource, Span, named_if_broken

__all__ = ["BaseSource", "Span", "named_if_broken", "open_source"]
