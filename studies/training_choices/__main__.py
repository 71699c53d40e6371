"""Entry point of `python -m studies.training_choices`."""

from studies.training_choices.study import main

if __name__ == "__main__":
    main()
