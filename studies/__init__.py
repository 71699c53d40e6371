"""The claims of the literature, re-run on data that can be had."""
