"""Entry point of `python -m studies.segmentation`."""

from studies.segmentation.study import main

if __name__ == "__main__":
    main()
