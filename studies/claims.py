"""The claims under test, and the figures of the studies' tables that speak for or against them."""

from __future__ import annotations

from studies.verdicts import Claim, Evidence

__all__ = ["CLAIMS"]

DIFFERENCE = "ECE minus first row"
SCORES, LEAST, AFTER = "AUROC of scores", "least confidence", "NLL after scaling "
LOSS, FEATURES = "Loss, LeNet5", "Last layer"
TEST_SCATTER = "within / between classes, test"
FASHION, CIFAR = "Fashion-MNIST", "CIFAR-10"
CHOSEN = "joint, chosen floor"
PAIR, END = "swapped pair, stopped", "swapped pair, to the end"
FEW, MANY = "250 rows", "16,000 rows"
BALANCED, ERRORS = "Balanced training", "Error of generative"
COMBINED, NAIVE_BAYES = "Log loss of two models", "Naive Bayes: overfitting"
OF_30, ROWS = "densities of 30 features, minus logistic regression", "few rows"
NAIVE = "naive Bayes minus logistic regression without penalty"
GAIN = "Log loss minus that of the weights"
STOPPED, TO_THE_END = "Networks stopped at", "Networks trained to the end"
LOSS_MINUS_IGNORE = "log loss minus ignore"


def _accuracy(data: str, rate: str, n_seeds: int | None = None) -> Evidence:
    """Return the accuracy of the uncertainty-aware loss minus that of cross-entropy."""
    table = f"{data}: accuracy"
    return Evidence(
        f"accuracy minus that of cross-entropy, {data}, {rate}",
        (table, CHOSEN, rate),
        minus=(table, "cross-entropy", rate),
        n_seeds=n_seeds,
    )


def _detection(data: str, rate: str, n_seeds: int | None = None) -> Evidence:
    """Return the AUROC of s for classes with unreliable labels."""
    table = f"{data}: AUROC for noisy classes"
    return Evidence(
        f"AUROC of s, {data}, {rate} swapped",
        (table, CHOSEN, f"s, {rate}"),
        bound=0.5,
        n_seeds=n_seeds,
    )


CLAIMS: dict[str, tuple[Claim, ...]] = {
    "training_choices": (
        Claim(
            "depth, width and batch norm harm calibration, weight decay helps",
            "Guo et al. 2017",
            (
                Evidence("ECE, 6 layers minus 1", ("Depth", "6 layers", DIFFERENCE)),
                Evidence("ECE, 32 channels minus 4", ("Width", "32 channels", DIFFERENCE)),
                Evidence(
                    "ECE, with batch norm minus without",
                    ("Batch norm", "batch norm, rate 0.0005", DIFFERENCE),
                ),
                Evidence(
                    "ECE, decay 0.02 minus none", ("Weight decay", "0.02", DIFFERENCE), "below"
                ),
            ),
        ),
        Claim(
            "a small old network is calibrated, a larger modern one is not",
            "Guo et al. 2017",
            (
                Evidence("ECE of LeNet5", ("Old and new", "LeNet5", "ECE"), "below", 0.03),
                Evidence(
                    "ECE, 6 layers of 64 minus LeNet5",
                    ("Old and new", "6 layers of 64, batch norm", DIFFERENCE),
                ),
            ),
        ),
        Claim(
            "log loss overfits while the error does not",
            "Guo et al. 2017",
            (
                Evidence("rise of log loss", ("LeNet5, 20,000", "difference", "log loss")),
                Evidence("rise of error", ("LeNet5, 20,000", "difference", "error"), "below", 0.01),
            ),
        ),
        Claim(
            "label smoothing calibrates and tightens class clusters",
            "Müller et al. 2019",
            (
                Evidence(
                    "ECE, smoothing 0.05 minus none", (LOSS, "smoothing 0.05", DIFFERENCE), "below"
                ),
                Evidence(
                    "scatter of test features, smoothing 0.05 minus none",
                    (FEATURES, "smoothing 0.05", TEST_SCATTER),
                    "below",
                    minus=(FEATURES, "cross-entropy", TEST_SCATTER),
                ),
            ),
        ),
        Claim(
            "square loss is as good as cross-entropy",
            "Hui and Belkin 2021",
            (
                Evidence(
                    "error minus that of cross-entropy",
                    (LOSS, "square loss", "error"),
                    "below",
                    0.01,
                    (LOSS, "cross-entropy", "error"),
                ),
                Evidence(
                    "ECE minus that of cross-entropy", (LOSS, "square loss", DIFFERENCE), "below"
                ),
            ),
        ),
    ),
    "calibrators": (
        Claim(
            "a single temperature is hard to beat",
            "Guo et al. 2017",
            (
                Evidence(
                    "ECE, uncalibrated minus temperature",
                    ("Difference to temperature", "uncalibrated", "ECE"),
                ),
                Evidence(
                    "log loss, matrix scaling minus temperature",
                    ("Difference to temperature", "matrix", "log loss"),
                ),
            ),
        ),
        Claim(
            "regularized matrix scaling does better than a temperature",
            "Kull et al. 2019, Berta et al. 2025",
            tuple(
                Evidence(
                    f"log loss, {name} minus temperature",
                    ("Difference to temperature", name, "log loss"),
                    "below",
                )
                for name in ("matrix (ODIR)", "structured matrix")
            ),
        ),
    ),
    "shift": (
        Claim(
            "under shift networks become over-confident",
            "Ovadia et al. 2019",
            tuple(
                Evidence(
                    f"optimal temperature, {name} at severity {severity}",
                    ("Optimal temperature", name, f"severity {severity}"),
                    bound=1.0,
                )
                for name, severity in (("shift", 5), ("occlusion", 5), ("contrast", 1))
            ),
        ),
        Claim(
            "ensembles are the most robust",
            "Ovadia et al. 2019",
            (
                Evidence(
                    "log loss at severity 5, ensemble minus plain",
                    ("Log loss minus", "ensemble", "severity 5"),
                    "below",
                ),
                Evidence(
                    "ECE under low contrast, ensemble minus plain",
                    ("ECE by corruption", "ensemble", "contrast"),
                    "below",
                    minus=("ECE by corruption", "plain", "contrast"),
                ),
            ),
        ),
        Claim(
            "a temperature fitted on clean images no longer helps",
            "Ovadia et al. 2019",
            (
                Evidence(
                    "log loss at severity 5, temperature minus plain",
                    ("Log loss minus", "temperature", "severity 5"),
                ),
                Evidence(
                    "ECE at severity 5, temperature minus plain",
                    ("ECE at severity 5 minus", "temperature "),
                ),
            ),
        ),
    ),
    "noisy_pairs": (
        Claim(
            "a learned log variance detects unreliable labels",
            "Kornaev et al. 2024",
            (
                _detection(FASHION, "20%"),
                _detection(FASHION, "40%"),
                _detection(CIFAR, "20%", 3),
                _detection(CIFAR, "40%", 3),
            ),
        ),
        Claim(
            "at no loss of accuracy",
            "Kornaev et al. 2024",
            (
                _accuracy(FASHION, "0% swapped"),
                _accuracy(FASHION, "20% swapped"),
                _accuracy(FASHION, "40% swapped"),
                _accuracy(CIFAR, "20% swapped", 3),
                _accuracy(CIFAR, "40% swapped", 3),
            ),
        ),
    ),
    "votes": (
        Claim(
            "weighted votes of several views beat the single view",
            "Ayhan and Berens 2018, Kornaev et al. 2024",
            tuple(
                Evidence(
                    f"points gained by confidence votes, 40 % swapped, mirrors {where}",
                    ("cross-entropy, 40% swapped", "confidence", f"mirrors, {where}"),
                )
                for where in ("also in training", "not in training")
            ),
        ),
    ),
    "softmax_ood": (
        Claim(
            "OOD inputs have smaller feature norms",
            "Pearce et al. 2021",
            tuple(
                Evidence(
                    f"norm relative to known images, {kind}",
                    ("OOD inputs as seen", kind, "norm / known"),
                    "below",
                    1.0,
                )
                for kind in ("noise", "digits", "bags and boots", "fooling")
            ),
        ),
        Claim(
            "OOD inputs have lower confidence",
            "Pearce et al. 2021",
            tuple(
                Evidence(
                    f"AUROC of least confidence, {kind}",
                    (SCORES, LEAST, kind),
                    bound=0.5,
                )
                for kind in ("noise", "bags and boots", "fooling")
            ),
        ),
        Claim(
            "where confidence fails, OOD inputs overlap with known data",
            "Pearce et al. 2021",
            (
                Evidence(
                    "AUROC of least confidence on bags and boots, 2 features minus 84",
                    ("2 penultimate", "2 features, AUROC", "bags and boots"),
                    "below",
                    minus=("2 penultimate", "84 features, AUROC", "bags and boots"),
                ),
                Evidence(
                    "AUROC of Mahalanobis on fooling images",
                    (SCORES, "Mahalanobis", "fooling"),
                    "below",
                    0.9,
                ),
            ),
        ),
        Claim(
            "ReLU networks become confident far away; noise can be optimized to fool",
            "Hein et al. 2019, Nguyen et al. 2015",
            (
                Evidence(
                    "confidence in noise, times 50 minus times 1",
                    ("Mean confidence", "images, noise", "times 50"),
                    minus=("Mean confidence", "images, noise", "times 1"),
                ),
                Evidence(
                    "confidence in fooling images",
                    ("OOD inputs as seen", "fooling", "confidence"),
                    bound=0.99,
                ),
            ),
        ),
    ),
    "more_data": (
        Claim(
            "epistemic uncertainty shrinks with more data",
            "Kendall and Gal 2017",
            tuple(
                Evidence(
                    f"epistemic uncertainty, {row}, 16,000 rows minus 250",
                    ("Epistemic uncertainty", row, MANY),
                    "below",
                    minus=("Epistemic uncertainty", row, FEW),
                )
                for row in (PAIR, "hard classes, stopped", "digits, stopped", END)
            ),
        ),
        Claim(
            "aleatoric uncertainty stays",
            "Kendall and Gal 2017",
            tuple(
                Evidence(
                    f"aleatoric uncertainty, {row}, 16,000 rows minus 1,000",
                    ("Aleatoric uncertainty", row, MANY),
                    "below",
                    0.1,
                    ("Aleatoric uncertainty", row, "1,000 rows"),
                )
                for row in ("easy classes, stopped", END)
            ),
        ),
        Claim(
            "ensembles gain most with few data",
            "Lakshminarayanan et al. 2017",
            tuple(
                Evidence(
                    f"gain in log loss of an ensemble of 10 {way}, with 250 rows minus 16,000",
                    (start, "one network by "),
                    minus=(start, "with 250 rows and "),
                )
                for way, start in (("stopped early", STOPPED), ("trained to the end", TO_THE_END))
            ),
        ),
    ),
    "input_noise": (
        Claim(
            "density detects noise in inputs better than entropy does",
            "Bishop 1994",
            tuple(
                Evidence(
                    f"AUROC of density minus entropy, {kind}",
                    ("Noise in inputs at level 3", f"{kind} "),
                )
                for kind in (
                    "wine noise",
                    "digits noise",
                    "Fashion-MNIST noise",
                    "Fashion-MNIST blur",
                )
            ),
        ),
        Claim(
            "entropy detects noise in labels",
            "Hüllermeier and Waegeman 2021",
            tuple(
                Evidence(
                    f"AUROC of entropy at 40 % minus 0 %, {name}",
                    ("Noise in labels", f"{name} entropy, classifier "),
                )
                for name in ("wine", "digits", "Fashion-MNIST")
            ),
        ),
    ),
    "regression_noise": (
        Claim(
            "a learned variance finds input-dependent noise",
            "Nix and Weigend 1994",
            (
                Evidence(
                    "error of the log std on a noisy sine, learned minus one variance",
                    ("A sine with growing", "NLL", "error of log std"),
                    "below",
                    minus=("A sine with growing", "one variance", "error of log std"),
                ),
                Evidence(
                    "NLL on diabetes, learned minus one variance", ("**Diabetes**", AFTER), "below"
                ),
            ),
        ),
        Claim(
            "NLL mistakes errors for noise, beta-NLL corrects this",
            "Seitzer et al. 2022",
            (
                Evidence(
                    "RMSE on a quiet sine, NLL minus one variance",
                    ("**A sine of six", "NLL minus one variance: RMSE "),
                ),
                Evidence(
                    "RMSE on a quiet sine, beta-NLL minus NLL",
                    ("**A sine of six", "beta-NLL 0.5 minus NLL: RMSE "),
                    "below",
                ),
            ),
        ),
        Claim(
            r"a loss \|r\|^p estimates median, mean, then midrange",
            "Bishop 1995",
            tuple(
                Evidence(
                    f"center learned with p = {p}, known {known} minus 0.02",
                    ("p", p, "network, minus the sine"),
                    bound=round(known - 0.02, 3),
                )
                for p, known in (("1", 0.159), ("2", 0.200), ("4", 0.255), ("16", 0.374))
            ),
        ),
    ),
    "segmentation": (
        Claim(
            "aleatoric uncertainty is high at borders, epistemic on OOD shapes",
            "Kendall and Gal 2017",
            (
                Evidence(
                    "AUROC of aleatoric uncertainty, borders",
                    (
                        "trained on, model",
                        "noisy borders, ensemble, aleatoric",
                        "borders, inner pixels",
                    ),
                    bound=0.5,
                ),
                Evidence(
                    "AUROC of epistemic uncertainty, OOD shapes",
                    (
                        "trained on, model",
                        "noisy borders, ensemble, epistemic",
                        "inside OOD shapes, known shapes",
                    ),
                    bound=0.5,
                ),
            ),
        ),
        Claim(
            "a mean teacher gains, more so if weighted by uncertainty",
            "Tarvainen and Valpola 2017, Yu et al. 2019",
            (
                Evidence(
                    "points of Dice, mean teacher minus labels only",
                    ("With few labeled", "mean teacher", "Dice minus labels only"),
                ),
                Evidence(
                    "points of Dice, weighted minus plain mean teacher",
                    (
                        "With few labeled",
                        "mean teacher, weighted by certainty",
                        "minus mean teacher",
                    ),
                ),
            ),
        ),
    ),
    "uncertain_labels": (
        Claim(
            "ignoring uncertain labels is less effective than to take them for positive",
            "Irvin et al. 2019",
            tuple(
                Evidence(
                    f"ROC-AUC, ones minus ignore, marked {mechanism}",
                    (f"Marked: {mechanism}", "ones", "ROC-AUC minus ignore"),
                )
                for mechanism in ("at random", "mainly positive", "mainly negative", "hard to tell")
            ),
        ),
        Claim(
            "the best policy depends on why labels are uncertain",
            "Irvin et al. 2019",
            (
                Evidence(
                    "log loss, ones minus ignore, marked mainly positive",
                    ("Marked: mainly positive", "ones", LOSS_MINUS_IGNORE),
                    "below",
                ),
                Evidence(
                    "log loss, ones minus ignore, marked mainly negative",
                    ("Marked: mainly negative", "ones", LOSS_MINUS_IGNORE),
                ),
                Evidence(
                    "log loss, multi-class minus ignore, marked hard to tell",
                    ("Marked: hard to tell", "multi-class", LOSS_MINUS_IGNORE),
                    "below",
                ),
            ),
        ),
        Claim(
            "soft labels are better than hard ones",
            "Pham et al. 2021",
            tuple(
                Evidence(
                    f"log loss, 0.7 minus {hard}, marked {mechanism}",
                    (f"Marked: {mechanism}", "soft: 0.7", "log loss"),
                    "below",
                    minus=(f"Marked: {mechanism}", hard, "log loss"),
                )
                for hard in ("ones", "zeros")
                for mechanism in ("at random", "mainly positive", "mainly negative", "hard to tell")
            ),
        ),
    ),
    "bayesian": (
        Claim(
            "with few rows per weight, averaging over the posterior helps",
            "MacKay 1992, Gal and Ghahramani 2016",
            tuple(
                Evidence(
                    f"log loss, {method} minus as trained, {row}", (GAIN, row, method), "below"
                )
                for method in ("Laplace, full", "Laplace, diagonal", "Monte Carlo dropout")
                for row in ("50 rows, width 64", "1,000 rows, width 64")
            ),
        ),
        Claim(
            "with many rows per weight, frequentist and Bayesian answers agree",
            "MacKay 1992",
            tuple(
                Evidence(
                    f"distance to the trained weights, {method}, {row}",
                    ("Distance to", row, method),
                    "below",
                    0.01,
                )
                for method in ("Laplace, full", "Laplace, diagonal")
                for row in ("5,000 rows, width 4", "5,000 rows, width 16")
            ),
        ),
        Claim(
            "so do passes with dropout",
            "Gal and Ghahramani 2016",
            (
                Evidence(
                    "distance to the trained weights, dropout, 5,000 rows, width 4",
                    ("Distance to", "5,000 rows, width 4", "Monte Carlo dropout"),
                    "below",
                    0.01,
                ),
            ),
        ),
    ),
    "textbook_claims": (
        Claim(
            "with 1 positive in 100, balanced training and a compensated prior beat natural rows",
            "Bishop 2006",
            tuple(
                Evidence(f"log loss, {row}", (BALANCED, row, "log loss"), "below")
                for row in (
                    "logistic regression: balanced and compensated minus natural",
                    "boosted trees: balanced and compensated minus natural",
                    "logistic regression: balanced, compensated minus not",
                )
            ),
        ),
        Claim(
            "the same if negatives are thrown away to balance",
            "Bishop 2006",
            tuple(
                Evidence(
                    f"log loss, {model}: thinned minus natural",
                    (BALANCED, f"{model}: thinned and compensated minus natural", "log loss"),
                    "below",
                )
                for model in ("logistic regression", "boosted trees")
            ),
        ),
        Claim(
            "generative models need more data",
            "Bishop 2006",
            (
                Evidence("error with 100 rows, densities minus logistic", (ERRORS, OF_30, ROWS)),
                Evidence(
                    "error with 20,000 rows, densities minus logistic",
                    (ERRORS, OF_30, "many rows"),
                    "below",
                    0.01,
                ),
            ),
        ),
        Claim(
            "generative models need less data",
            "Ng and Jordan 2001",
            (
                Evidence(
                    "error with 20 rows, naive Bayes minus logistic",
                    (ERRORS, NAIVE, ROWS),
                    "below",
                ),
                Evidence(
                    "error with 20,000 rows, naive Bayes minus logistic",
                    (ERRORS, NAIVE, "many rows"),
                ),
            ),
        ),
        Claim(
            "separate models combined are as good as one model on joined inputs",
            "Bishop 2006",
            tuple(
                Evidence(
                    f"log loss with many rows, combined minus joined, {row}",
                    (COMBINED, row, "many rows"),
                    "below",
                    0.005,
                )
                for row in ("independent parts", "dependent parts", "breast cancer")
            ),
        ),
        Claim(
            "a model that does not overfit is nevertheless over-confident",
            "Guo et al. 2017, Domingos and Pazzani 1997",
            (
                Evidence(
                    "test minus training error, correlated features",
                    (NAIVE_BAYES, "correlated features", "test minus training error"),
                    "below",
                    0.005,
                ),
                *(
                    Evidence(
                        f"confidence minus accuracy, {row}",
                        (NAIVE_BAYES, row, "confidence minus accuracy"),
                    )
                    for row in ("correlated features", "breast cancer", "digits")
                ),
            ),
        ),
    ),
}
