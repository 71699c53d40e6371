"""The layout is the architecture: layers, light imports, complete and sorted public names."""

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dubito

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dubito"
MODULES = sorted(SOURCE.rglob("*.py"))

# Imports go downwards only; packages on one line never import each other.
LAYERS = [
    ["__main__"],
    ["cli"],
    ["serve"],
    ["report", "learn", "export"],
    ["monitor"],
    ["decide"],
    ["calibrate", "doubt"],
    ["measure"],
    ["data"],
    ["serialization"],
    ["outputs"],
    ["charts"],
    ["formatting"],
    ["arrays"],
    ["kernels"],
    ["errors"],
]
HEIGHT = {name: -height for height, layer in enumerate(LAYERS) for name in layer}

# Heavy or optional packages, and the only places that may import them.
HOMES = {
    # A module of PyTorch is one of the targets of export, and learn is its sibling.
    "torch": ["learn", "export/torch_module.py"],
    "onnx": ["export/onnx_export.py"],
    "mlflow": ["export/trackers.py"],
    "onnxruntime": [],
    "dask": ["data/dask.py"],
    "distributed": ["data/dask.py"],
    "altair": ["report"],
    "matplotlib": ["report"],
    "jinja2": ["report", "serve"],
    "fastapi": ["serve"],
    "starlette": ["serve"],
    "uvicorn": ["serve"],
    "sqlalchemy": ["serve"],
    "alembic": ["serve"],
    "psycopg": ["serve"],
    "pydantic": ["serve"],
    "prometheus_client": ["serve"],
    "itsdangerous": ["serve"],
    "numba": ["kernels"],
    "llvmlite": ["kernels"],
    "pyarrow": ["data"],
    "narwhals": ["data"],
    "typer": ["cli"],
}


@functools.cache
def parsed(module: Path) -> ast.Module:
    return ast.parse(module.read_text())


@functools.cache
def imported(module: Path) -> tuple[str, ...]:
    return tuple(find_imports(module))


def find_imports(module: Path) -> Iterator[str]:
    for node in ast.walk(parsed(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} has a relative import"
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(module: Path) -> str:
    parts = module.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "dubito" or len(parts) == 1:
        return None
    if parts[1] in dubito.__all__:  # a name of the root is a name of where it comes from
        return layer_of(getattr(dubito, parts[1]).__module__)
    return parts[1] if parts[1] in HEIGHT else None


def test_every_package_has_a_layer() -> None:
    packages = {path.relative_to(SOURCE).parts[0].removesuffix(".py") for path in MODULES}
    assert packages - {"__init__"} <= set(HEIGHT)


def test_the_page_on_the_architecture_names_modules_that_exist() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"[\w/]+\.py\b", page))
    assert len(named) > 30
    missing = [one for one in named if not (ROOT / one).exists() and not any(SOURCE.rglob(one))]
    assert not missing


@pytest.mark.slow
def test_imports_go_downwards() -> None:
    wrong = []
    for module in MODULES:
        own = layer_of(name_of(module))
        for name in imported(module):
            other = layer_of(name)
            is_other = own is not None and other is not None and own != other
            if is_other and HEIGHT[str(other)] >= HEIGHT[str(own)]:
                wrong.append(f"{name_of(module)} imports {name}")
    assert not wrong


@pytest.mark.slow
def test_heavy_packages_stay_at_home() -> None:
    wrong = []
    for module in MODULES:
        path = module.relative_to(SOURCE).as_posix()
        for name in imported(module):
            homes = HOMES.get(name.split(".")[0], [path])
            if not any(path == home or path.startswith(f"{home}/") for home in homes):
                wrong.append(f"{path} imports {name}")
    assert not wrong


def imported_from(module: Path) -> set[str]:
    """Return the names that a module takes from others, now or when first used."""
    return {
        alias.asname or alias.name
        for node in ast.walk(parsed(module))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dubito.")
        for alias in node.names
    }


def test_public_names_exist_and_are_sorted() -> None:
    for package in SOURCE.rglob("__init__.py"):
        loaded = importlib.import_module(name_of(package))
        names = getattr(loaded, "__all__", [])
        assert all(hasattr(loaded, name) for name in names), package
        assert list(names) == sorted(names), package


def test_a_package_offers_what_it_imports() -> None:
    for package in ("calibrate", "data", "decide", "doubt", "learn", "measure", "monitor"):
        loaded = importlib.import_module(f"dubito.{package}")
        assert imported_from(SOURCE / package / "__init__.py") == set(loaded.__all__), package


def names_used_elsewhere() -> set[str]:
    """Return `module.name` for every name that another module, benchmark or study takes."""
    users = [*MODULES]
    for folder in ("benchmarks", "examples", "studies"):
        users += (ROOT / folder).rglob("*.py")
    used = set()
    for module in users:
        tree = parsed(module)
        modules = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    used.add(f"{node.module}.{alias.name}")
                    modules[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                used.add(f"{modules.get(node.value.id)}.{node.attr}")
    return used


@pytest.mark.slow
def test_what_only_its_module_uses_is_private() -> None:
    used = names_used_elsewhere()
    wrong = []
    for module in MODULES:
        if module.name == "__init__.py" or "migrations" in module.parts:
            continue
        for node in parsed(module).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                is_route = any(isinstance(one, ast.Call) for one in node.decorator_list)
                is_used = f"{name_of(module)}.{node.name}" in used
                if not (node.name.startswith("_") or is_used or is_route):
                    wrong.append(f"{name_of(module)}.{node.name}")
    assert not wrong


def test_private_names_stay_in_their_module() -> None:
    wrong = [
        name
        for module in MODULES
        for name in imported(module)
        if name.startswith("dubito.") and name.rsplit(".", 1)[-1].startswith("_")
    ]
    assert not [name for name in wrong if not name.endswith("__version__")]


# What others build on: removing or renaming one of these breaks them.
FIXED = {
    "dubito": """AutoCalibrator CostMatrix Policy Logits Probabilities Members TopLabel
        Normal Samples Quantiles audit""",
    "dubito.measure": """accuracy log_loss brier_score expected_calibration_error
        maximum_calibration_error classwise_calibration_error debiased_calibration_error
        smooth_calibration_error reliability_curve risk_coverage_curve
        area_under_risk_coverage area_under_generalized_risk_coverage roc_auc
        false_positive_rate_at_recall confidence_interval paired_difference ReliabilityCurve
        Interval Audit get_scorer""",
    "dubito.calibrate": """TemperatureScaling VectorScaling MatrixScaling
        StructuredMatrixScaling EnsembleTemperatureScaling PlattScaling BetaCalibration
        HistogramBinning IsotonicCalibration OneVsRest AutoCalibrator CalibratedClassifier""",
    "dubito.decide": """CostMatrix expected_costs optimal_actions reject_threshold
        choose_threshold adjust_prior estimate_prior combine_posteriors minkowski_estimate
        expected_risk""",
    "dubito.doubt": """least_confidence entropy margin_uncertainty energy feature_norm
        familiarity negative_feature_norm unfamiliarity mental_model MahalanobisDistance
        NearestNeighborDistance VirtualLogitMatching ClassConditionalDensity
        decompose_uncertainty vote ConformalOutlierDetector ConformalClassifier
        ConformalRegressor""",
    "dubito.learn": """Gaussian HeteroscedasticGaussian Laplace Bernoulli Categorical
        SquaredError UncertaintyAware flip_labels LogitNoise smooth_labels""",
    "dubito.data": "Batch Columns Shards ArrayShards FileShards read scan",
    "dubito.monitor": "Comparison Drift compare detect_drift",
    "dubito.serve.store": "NewDecisions ReviewItem Store StoredRows",
}


@pytest.mark.parametrize("package", FIXED)
def test_fixed_names_stay(package: str) -> None:
    assert set(FIXED[package].split()) <= set(importlib.import_module(package).__all__)


def test_public_names_of_the_root_are_complete() -> None:
    for name in dubito.__all__:
        assert getattr(dubito, name).__module__.startswith("dubito.")
    assert set(dubito.__all__) <= set(dir(dubito))
    with pytest.raises(AttributeError, match="no attribute 'guess'"):
        _ = dubito.guess


def modules_loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_importing_dubito_loads_nothing_heavy() -> None:
    heavy = {"numba", "scipy", "sklearn", "pandas", "polars", "pyarrow", "torch", "typer", "rich"}
    heavy |= {"fastapi", "sqlalchemy"}
    assert not modules_loaded_by("import dubito") & heavy


def test_the_command_line_starts_without_the_library() -> None:
    heavy = {"numba", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "torch"}
    heavy |= {"fastapi", "sqlalchemy"}
    assert not modules_loaded_by("import dubito.cli") & heavy


def test_the_glossary_needs_no_library() -> None:
    heavy = {"numba", "numpy", "scipy", "sklearn", "pandas", "pyarrow", "torch", "fastapi"}
    statement = "from dubito.cli.explain import explain; explain(['ece'], as_json=True)"
    assert not modules_loaded_by(statement) & heavy
