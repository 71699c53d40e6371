"""What `python -m studies.softmax_ood` runs."""

from studies.softmax_ood.study import main

if __name__ == "__main__":
    main()
