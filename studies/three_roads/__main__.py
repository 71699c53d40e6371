"""Entry point of `python -m studies.three_roads`."""

from studies.three_roads.study import main

if __name__ == "__main__":
    main()
