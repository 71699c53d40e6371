"""Entry point of `python -m studies.softmax_ood`."""

from studies.softmax_ood.study import main

if __name__ == "__main__":
    main()
