"""Entry point of `python -m studies.regression_noise`."""

from studies.regression_noise.study import main

if __name__ == "__main__":
    main()
