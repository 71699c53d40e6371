"""The claims of the literature, re-run on available data."""
