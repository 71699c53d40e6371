"""`python -m dubito` is `dubito`."""

from dubito.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    main()
