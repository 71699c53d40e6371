"""What `python -m studies.segmentation` runs."""

from studies.segmentation.study import main

if __name__ == "__main__":
    main()
