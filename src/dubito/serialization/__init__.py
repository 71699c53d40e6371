"""The one way to files: declared fields, arrays, and fitted estimators as plain numbers and names."""
