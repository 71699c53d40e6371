"""What `python -m studies.more_data` runs."""

from studies.more_data.study import main

if __name__ == "__main__":
    main()
