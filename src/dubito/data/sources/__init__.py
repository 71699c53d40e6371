"""Sources of tables: a name, a schema and a stream of Arrow record batches."""

from dubito.data.sources.formats import BaseSource, Span, file_errors
from dubito.data.sources.opening import open_source

__all__ = ["BaseSource", "Span", "file_errors", "open_source"]
