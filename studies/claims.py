"""The claims under test, and the estimates in the studies' tables that speak for or against them.

Which estimates: those at the ends of a table's scale (severities 1 and 5, 250 and 16,000 rows), and
there all of its rows, kinds and data sets that the claim is about. None is left out for what it
shows. "As good as" and "no loss" have a margin: 0.01 for errors, accuracies and ECE, 0.005 nats
where differences of log loss are that small; "stays" and "estimates" are intervals around 0.
"""

from __future__ import annotations

from studies.verdicts import Claim, Evidence, Where

__all__ = ["CLAIMS"]

DIFFERENCE = "ECE minus first row"
KINDS = ("bags and boots", "digits", "corrupted", "shuffled pixels", "noise", "fooling")
CORRUPTIONS = ("blur", "contrast", "noise", "occlusion", "shift")
ECE_OF, AT_5 = "ECE by corruption", "severity 5"
SCORES, LEAST, AFTER = "AUROC of scores", "least confidence", "NLL after scaling "
LOSS, FEATURES = "Loss, LeNet5", "Last layer"
LEAST_OF = "AUROC of least confidence, directions times"
DIMENSIONS = ("2 dimensions", "20 dimensions", "200 dimensions")
FASHION, CIFAR = "Fashion-MNIST", "CIFAR-10"
CHOSEN = "joint, chosen floor"
DATA = tuple(
    f"{kind}, {way}"
    for way in ("stopped", "to the end")
    for kind in ("swapped pair", "easy classes", "hard classes")
)
FEW, MANY = "250 rows", "16,000 rows"
BALANCED, ERRORS = "Balanced training", "Error of generative"
COMBINED, NAIVE_BAYES = "Log loss of two models", "Naive Bayes: overfitting"
COMPENSATED = "balanced, compensated minus not"
LOWER_LOSS: tuple[tuple[str, Where], ...] = (("log loss", "below"),)
HIGHER_AUROC: tuple[tuple[str, Where], ...] = (("AUROC", "above"),)
OVERFITS_LESS: tuple[Where, float] = ("below", 0.005)
NAIVE = "naive Bayes minus logistic regression without penalty"
SAME = "Log loss of averages minus the same network"
FREQUENTIST = "Log loss of averages minus a frequentist"
OF_50, OF_5000 = ([f"{n} rows, width {width}" for width in (4, 16, 64)] for n in ("50", "5,000"))
STOPPED, TO_THE_END = "Networks stopped at", "Networks trained to the end"
LOSS_MINUS_IGNORE = "log loss minus ignore"


def _accuracy(data: str, rate: str, n_seeds: int | None = None) -> Evidence:
    """Return the accuracy of the uncertainty-aware loss minus that of cross-entropy."""
    table = f"{data}: accuracy"
    if rate == "40% swapped":
        return Evidence(
            f"points above cross-entropy, {data}, {rate}",
            (table, CHOSEN, "points above cross-entropy at 40%"),
            bound=-1.0,
            n_seeds=n_seeds,
        )
    return Evidence(
        f"accuracy minus that of cross-entropy, {data}, {rate}",
        (table, CHOSEN, rate),
        bound=-0.01,
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


def _balanced(change: str) -> tuple[Evidence, ...]:
    """Return what a change of the training rows does to log loss, and to AUROC if it can."""
    return tuple(
        Evidence(f"{figure}, {model}: {change}", (BALANCED, f"{model}: {change}", figure), where)
        for figure, where in (*LOWER_LOSS, *(() if change == COMPENSATED else HIGHER_AUROC))
        for model in ("logistic regression", "boosted trees")
    )


def _roads(table: str, row: str, where: Where, what: str) -> tuple[Evidence, ...]:
    """Return a paired difference of two approaches on every data set."""
    return tuple(
        Evidence(f"{what}, {row}, {data}", (table, row, data), where)
        for data in ("normal", "skewed", "breast cancer", "shirts")
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
                    "ECE, with batch norm minus without, higher rate",
                    ("Batch norm", "batch norm, rate 0.002", "ECE"),
                    minus=("Batch norm", "none, rate 0.002", "ECE"),
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
                *(
                    Evidence(
                        f"ECE, 6 layers of {width} minus LeNet5",
                        ("Old and new", f"6 layers of {width}, batch norm", DIFFERENCE),
                    )
                    for width in (32, 64)
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
                *(
                    Evidence(
                        f"ECE, smoothing {much} minus none",
                        (LOSS, f"smoothing {much}", DIFFERENCE),
                        "below",
                    )
                    for much in ("0.05", "0.1")
                ),
                *(
                    Evidence(
                        f"scatter of {rows} features, smoothing {much} minus none",
                        (FEATURES, f"smoothing {much}", f"within / between classes, {rows}"),
                        "below",
                        minus=(FEATURES, "cross-entropy", f"within / between classes, {rows}"),
                    )
                    for rows in ("train", "test")
                    for much in ("0.05", "0.1")
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
                    "ECE minus that of cross-entropy",
                    (LOSS, "square loss", DIFFERENCE),
                    "below",
                    0.01,
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
                *(
                    Evidence(
                        f"log loss, {name} minus temperature",
                        ("Difference to temperature", name, "log loss"),
                    )
                    for name in ("histogram", "isotonic", "vector", "matrix")
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
                for severity in (1, 5)
                for name in CORRUPTIONS
            ),
        ),
        Claim(
            "ensembles are the most robust",
            "Ovadia et al. 2019",
            (
                Evidence(
                    "log loss at severity 5, ensemble minus plain",
                    ("Log loss minus", "ensemble", AT_5),
                    "below",
                ),
                *(
                    Evidence(
                        f"log loss at severity 5, ensemble minus {name}",
                        ("Log loss minus", "ensemble", AT_5),
                        "below",
                        minus=("Log loss minus", name, AT_5),
                    )
                    for name in ("temperature", "Monte Carlo dropout")
                ),
                Evidence(
                    "ECE at severity 5, ensemble minus plain",
                    ("ECE at severity 5 minus", ", ensemble "),
                    "below",
                ),
                *(
                    Evidence(
                        f"ECE, {name}, ensemble minus plain",
                        (ECE_OF, "ensemble", name),
                        "below",
                        minus=(ECE_OF, "plain", name),
                    )
                    for name in CORRUPTIONS
                ),
            ),
        ),
        Claim(
            "a temperature fitted on clean images no longer helps",
            "Ovadia et al. 2019",
            (
                Evidence(
                    "log loss at severity 5, temperature minus plain",
                    ("Log loss minus", "temperature", AT_5),
                ),
                Evidence(
                    "ECE at severity 5, temperature minus plain",
                    ("ECE at severity 5 minus", "temperature "),
                ),
                *(
                    Evidence(
                        f"ECE, {name}, temperature minus plain",
                        (ECE_OF, "temperature", name),
                        minus=(ECE_OF, "plain", name),
                    )
                    for name in CORRUPTIONS
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
                _accuracy(CIFAR, "0% swapped", 3),
                _accuracy(CIFAR, "20% swapped", 3),
                _accuracy(CIFAR, "40% swapped", 3),
            ),
        ),
    ),
    "votes": tuple(
        Claim(
            f"weighted votes of several views beat the single view: views {where}",
            "Ayhan and Berens 2018, Kornaev et al. 2024",
            tuple(
                Evidence(
                    f"points gained by confidence votes, {views}, {loss}, {rate} swapped",
                    (f"{loss}, {rate} swapped", "confidence", f"{views}, {where}"),
                )
                for views in ("shifts", "mirrors")
                for loss in ("cross-entropy", "joint, floor -4", "faithful")
                for rate in ("0%", "40%")
            ),
        )
        for where in ("also in training", "not in training")
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
                for kind in KINDS
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
                for kind in KINDS
            ),
        ),
        Claim(
            "where confidence fails, OOD inputs overlap with known data",
            "Pearce et al. 2021",
            (
                *(
                    Evidence(
                        f"AUROC of least confidence on {kind}, 2 features minus 84",
                        ("2 penultimate", "2 features, AUROC", kind),
                        "below",
                        minus=("2 penultimate", "84 features, AUROC", kind),
                    )
                    for kind in KINDS
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
                *(
                    Evidence(
                        f"confidence, {row}, times 50 minus times 1",
                        ("Mean confidence", row, "times 50"),
                        minus=("Mean confidence", row, "times 1"),
                    )
                    for row in ("images, known", "images, digits", "images, noise")
                ),
                *(
                    Evidence(
                        f"AUROC of least confidence, directions times 50, {row}",
                        ("Saturation", row, f"{LEAST_OF} 50"),
                        "below",
                        0.5,
                    )
                    for row in DIMENSIONS
                ),
                Evidence(
                    "confidence in fooling images",
                    ("OOD inputs as seen", "fooling", "confidence"),
                    bound=0.99,
                    highest=1.0,
                ),
            ),
        ),
        Claim(
            "random directions are less confident than known rows, least so in 2 dimensions",
            "Pearce et al. 2021",
            (
                *(
                    Evidence(
                        f"AUROC of least confidence, directions times 1, {row}",
                        ("Saturation", row, f"{LEAST_OF} 1"),
                        bound=0.5,
                    )
                    for row in DIMENSIONS
                ),
                *(
                    Evidence(
                        f"AUROC of least confidence, directions times 1, 2 dimensions minus {row}",
                        ("Saturation", DIMENSIONS[0], f"{LEAST_OF} 1"),
                        "below",
                        minus=("Saturation", row, f"{LEAST_OF} 1"),
                    )
                    for row in DIMENSIONS[1:]
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
                for row in (*DATA, "digits, stopped", "digits, to the end")
            ),
        ),
        Claim(
            "aleatoric uncertainty stays",
            "Kendall and Gal 2017",
            tuple(
                Evidence(
                    f"aleatoric uncertainty, {row}, 16,000 rows minus 250",
                    ("Aleatoric uncertainty", row, MANY),
                    "within",
                    0.05,
                    ("Aleatoric uncertainty", row, FEW),
                )
                for row in DATA
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
                    "digits blur",
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
                    f"center learned with p = {p}, minus the known one",
                    ("p", p, "network, minus the sine"),
                    "within",
                    0.02,
                    known=known,
                )
                for p, known in (
                    ("1", 0.159),
                    ("1.5", 0.181),
                    ("2", 0.200),
                    ("4", 0.255),
                    ("16", 0.374),
                )
            ),
        ),
    ),
    "segmentation": (
        Claim(
            "aleatoric uncertainty is high at borders, epistemic on OOD shapes",
            "Kendall and Gal 2017",
            (
                *(
                    Evidence(
                        f"AUROC of {kind} uncertainty, {where}, {model}",
                        ("trained on, model", f"noisy borders, {model}, {kind}", where),
                        bound=0.5,
                    )
                    for kind, where in (
                        ("aleatoric", "borders, inner pixels"),
                        ("epistemic", "inside OOD shapes, known shapes"),
                    )
                    for model in ("ensemble", "dropout")
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
                *(
                    Evidence(
                        f"points of Dice, {way} minus plain mean teacher",
                        ("With few labeled", f"mean teacher, {way}", "minus mean teacher"),
                    )
                    for way in ("certain pixels", "weighted by certainty")
                ),
            ),
        ),
    ),
    "uncertain_labels": (
        Claim(
            "ignoring uncertain labels is less effective than treating them as positive",
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
            "with 50 rows, averaging lowers the log loss of a network trained to the end",
            "MacKay 1992, Gal and Ghahramani 2016",
            tuple(
                Evidence(f"log loss, {pair}, {row}", (SAME, row, pair), "below")
                for pair in (
                    "Laplace, full minus as trained",
                    "Laplace, diagonal minus as trained",
                    "Monte Carlo dropout minus dropout, one pass",
                )
                for row in OF_50
            ),
        ),
        Claim(
            "with 50 rows, averaging is better than what a frequentist gets from the same rows",
            "MacKay 1992",
            tuple(
                Evidence(f"log loss, {pair}, {row}", (FREQUENTIST, row, pair), "below")
                for rival in ("temperature", "stopped early")
                for pair in (f"Laplace, full minus {rival}", f"Laplace, diagonal minus {rival}")
                for row in OF_50
            ),
        ),
        Claim(
            "with 5,000 rows, the predictions of the Laplace approximation agree with those of the "
            "trained weights",
            "MacKay 1992",
            tuple(
                Evidence(f"distance, {method}, {row}", ("Distance to", row, method), "below", 0.01)
                for method in ("Laplace, full", "Laplace, diagonal")
                for row in OF_5000
            ),
        ),
        Claim(
            "with 5,000 rows, the predictions with dropout agree with those of the network in one "
            "pass",
            "Gal and Ghahramani 2016",
            tuple(
                Evidence(
                    f"distance, dropout, {row}",
                    ("Distance to", row, "Monte Carlo dropout"),
                    "below",
                    0.01,
                )
                for row in OF_5000
            ),
        ),
    ),
    "textbook_claims": (
        Claim(
            "with 1 positive in 100, balanced training and a compensated prior beat natural rows",
            "Bishop 2006",
            (*_balanced("balanced and compensated minus natural"), *_balanced(COMPENSATED)),
        ),
        Claim(
            "the same if negatives are thrown away to balance",
            "Bishop 2006",
            _balanced("thinned and compensated minus natural"),
        ),
        *(
            Claim(
                f"generative models need more data: {kind}",
                "Bishop 2006",
                tuple(
                    Evidence(
                        f"error with {n} rows, {row} minus logistic regression",
                        (ERRORS, f"{row}, minus logistic regression", words),
                        where,  # type: ignore[arg-type]
                        bound,
                    )
                    for n, words, where, bound in (
                        ("100", "few rows", "above", 0.0),
                        ("20,000", "many rows", "within", 0.01),
                    )
                    for row in (kind, f"{kind}, shrunk")
                ),
            )
            for kind in ("covariance per class", "shared covariance")
        ),
        Claim(
            "generative models need less data: naive Bayes where it is nearly right",
            "Ng and Jordan 2001",
            (
                Evidence(
                    "error with 20 rows, naive Bayes minus logistic",
                    (ERRORS, NAIVE, "few rows"),
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
                    f"log loss with {words}, combined minus joined, {row}",
                    (COMBINED, row, words),
                    "below",
                    0.005,
                )
                for row in ("independent parts", "dependent parts", "breast cancer")
                for words in ("few rows", "many rows")
            ),
        ),
        Claim(
            "a model that does not overfit is nevertheless over-confident",
            "Guo et al. 2017, Domingos and Pazzani 1997",
            tuple(
                Evidence(f"{figure}, {row}", (NAIVE_BAYES, row, figure), *where)
                for row in ("correlated features", "breast cancer", "digits")
                for figure, where in (
                    ("test minus training error", OVERFITS_LESS),
                    ("confidence minus accuracy", ()),
                )
            ),
        ),
    ),
    "three_roads": (
        Claim(
            "if costs change after training, posteriors cost less than a fixed boundary",
            "Bishop 2006",
            tuple(
                one
                for miss in (5, 50)
                for one in _roads(
                    f"(a) Costs change after training: a miss costs {miss},",
                    "discriminant minus discriminative",
                    "above",
                    f"cost, a miss costs {miss}",
                )
            ),
        ),
        Claim(
            "posteriors can be compensated for a class that becomes rare",
            "Bishop 2006",
            tuple(
                one
                for road in ("generative", "discriminative")
                for one in _roads(
                    "(b) Class 1 is", f"{road} (adjusted) minus {road}", "below", "cost"
                )
            ),
        ),
        Claim(
            "posteriors can reject, which lowers the cost",
            "Bishop 2006",
            tuple(
                one
                for road in ("generative", "discriminative")
                for one in _roads(
                    "(e) Rejecting", f"{road} minus discriminant (cannot reject)", "below", "cost"
                )
            ),
        ),
        Claim(
            "posteriors of several models can be combined, better than votes of boundaries",
            "Bishop 2006",
            tuple(
                one
                for road in ("generative", "discriminative", "discriminative (pool)")
                for one in _roads(
                    "(e) 3 models", f"{road} minus discriminant (vote)", "below", "error"
                )
            ),
        ),
    ),
}
