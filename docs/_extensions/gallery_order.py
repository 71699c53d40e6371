"""The order of the gallery: from decisions on one table to many machines and other libraries."""

TASKS = (
    "plot_block_a_payment",
    "plot_approve_a_loan",
    "plot_triage_xrays",
    "plot_route_questions",
    "plot_review_team",
    "plot_prediction_sets",
    "plot_price_intervals",
    "plot_weekly_forecasts",
    "plot_unseen_inputs",
    "plot_trained_to_doubt",
    "plot_compare_before_release",
    "plot_gate_in_ci",
    "plot_billion_rows",
    "plot_from_other_libraries",
)


class TaskOrder:
    """Sorts scripts by their place in `TASKS`; others come last, by name."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, filename: str) -> tuple[int, str]:
        name = filename.removesuffix(".py")
        return (TASKS.index(name) if name in TASKS else len(TASKS), name)
