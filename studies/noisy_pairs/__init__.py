"""Learning with swapped labels; `noisy_recipe` and `votes` build upon its runs."""
