"""The one way to files: declared fields, estimators and records, and JSON documents."""
