"""Tools of the maintainers: building and checking a release."""
