"""What `python -m studies.softmax_strangers` runs."""

from studies.softmax_strangers.study import main

if __name__ == "__main__":
    main()
