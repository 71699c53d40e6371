"""What `python -m studies.shift` runs."""

from studies.shift.study import main

if __name__ == "__main__":
    main()
