"""Entry point of `python -m studies.noisy_pairs`."""

from studies.noisy_pairs.study import main

if __name__ == "__main__":
    main()
