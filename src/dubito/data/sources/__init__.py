"""Sources of tables: a name, a schema and a stream of Arrow record batches."""

from dubito.data.sources.opening import open_source
from dubito.data.sources.source import BaseSource, Span, file_errors

__all__ = ["BaseSource", "Span", "file_errors", "open_source"]
