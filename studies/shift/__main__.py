"""Entry point of `python -m studies.shift`."""

from studies.shift.study import main

if __name__ == "__main__":
    main()
