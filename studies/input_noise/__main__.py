"""Entry point of `python -m studies.input_noise`."""

from studies.input_noise.study import main

if __name__ == "__main__":
    main()
