"""Entry point of `python -m studies.more_data`."""

from studies.more_data.study import main

if __name__ == "__main__":
    main()
