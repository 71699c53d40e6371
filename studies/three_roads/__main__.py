"""What `python -m studies.three_roads` runs."""

from studies.three_roads.study import main

if __name__ == "__main__":
    main()
