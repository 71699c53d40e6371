"""A file a step."""
