"""What `python -m studies.regression_noise` runs."""

from studies.regression_noise.study import main

if __name__ == "__main__":
    main()
