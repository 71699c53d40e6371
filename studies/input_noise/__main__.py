"""What `python -m studies.input_noise` runs."""

from studies.input_noise.study import main

if __name__ == "__main__":
    main()
