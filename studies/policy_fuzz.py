"""Corrupted policy files: each is refused with a clear error, or loads and decides.

    python -m studies.policy_fuzz                 # 10,000 files
    python -m studies.policy_fuzz --files 500 -o FILE

Bits are flipped, files truncated, and entries replaced by values of another type, huge or deeply
nested values or NaN, removed, added or swapped. Every second file gets a new checksum, so that the
reader is tested and not only the checksum; if that is impossible, another file is corrupted, up to
eight times. States that `to_dict` returned are corrupted in the same ways, without a file. Loading
must execute nothing, which Python's audit events would show.
"""

import argparse
import base64
import json
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from dubito import Logits, MultiLabel, Normal, Quantiles, Samples
from dubito.calibrate import (
    AutoCalibrator,
    ForestCalibration,
    IsotonicCalibration,
    MultiLabelCalibrator,
    OneVsRest,
    QuantileRecalibration,
    StructuredMatrixScaling,
    TemperatureScaling,
    VarianceScaling,
)
from dubito.data import Batch
from dubito.decide import (
    CostMatrix,
    ErrorCosts,
    FBeta,
    LabelCosts,
    MultiLabelPolicy,
    OODGate,
    Policy,
    RegressionPolicy,
    RiskBound,
    load_policy,
)
from dubito.decide.policy.loading import AnyPolicy
from dubito.doubt import MahalanobisDistance
from dubito.errors import BadValueError, DubitoError
from dubito.measure import AuditState, MultiLabelState, RegressionState
from dubito.monitor import SequentialAlarm
from dubito.serialization.documents import decode_document, encode_document, read_text
from dubito.serialization.objects import Record

__all__ = [
    "CORRUPTIONS",
    "Outcomes",
    "executed_events",
    "fuzz",
    "fuzz_states",
    "main",
    "sound_policies",
    "sound_states",
    "tried",
]

DECIDED = "loads and decides"
READS = "reads"
UNDEFINED = "loads, and an expression is undefined"
N_TRIES = 8  # corrupted files to try until one can get a new checksum
SLOW = 5.0  # seconds that no file may take
EXECUTING = (
    "compile",
    "ctypes.dlopen",
    "exec",
    "import",
    "marshal.loads",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.system",
    "pickle.find_class",
    "socket.connect",
    "subprocess.Popen",
)


def packed(array: Any) -> dict[str, Any]:
    """Return an array as a policy file holds it."""
    text = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"base64": text, "dtype": array.dtype.name, "shape": list(array.shape)}


ODD: Sequence[Any] = (
    *(None, True, False, 0, -1, 1, 2, 0.5, -0.0, 1e-320, 1e30, 1e300, -1e308, 2**63, 10**400),
    *(float("nan"), float("inf"), "", "x" * 20_000, "\ud800", "1.5", "__import__('os').abort()"),
    *(
        "NearestNeighborDistance",
        "CostMatrix",
        "IdentityCalibrator",
        "TemperatureScaling",
        "Policy",
        "energy",
    ),
    *([], {}, [[]], [1], [0.5, 0.5], ["x", 1], [None], {"class": 1}, {"x": {}}, [[1, 2], [3]]),
    *(packed(np.arange(n) / max(n - 1, 1)) for n in (0, 1, 2, 3, 300)),
    *(packed(np.full(shape, np.nan)) for shape in ((3,), (3, 3))),
    *(packed(np.zeros(shape)) for shape in ((3,), (1, 3), (3, 3), (2, 2, 2))),
    *(packed(np.arange(5)), packed(np.ones(3, np.bool_))),
    *({**packed(np.ones(3)), "dtype": kind} for kind in ("object", ["float64"], "int64", "<f8")),
    *({**packed(np.ones(3)), "shape": shape} for shape in ([], [-3], [2**62, 0], "3", [3.0], 3)),
    *({**packed(np.ones(3)), "base64": text} for text in ("", "AAAA", "ä", 7, "gASVIAAAAAAA")),
)
DEEP = "replaced by deeply nested lists"


def sound_policies() -> dict[str, AnyPolicy]:
    """Return policies of many kinds, fitted to simulated rows."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(1200, 3))
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    some = slice(0, 300)
    features, row_costs = rng.normal(size=(1200, 4)) + y[:, np.newaxis], rng.random(1200)
    costs = CostMatrix.zero_one(["ant", "bee", "cat"]).with_reject(0.3)
    grows = CostMatrix([[0, "1 + fee", 1], [1, 0, "max(fee, 2 / `a b`)"], [1, 1, 0]])
    by_row = {"fee": row_costs[some], "a b": 1 + row_costs[some]}
    scaling, curves = TemperatureScaling(), OneVsRest(IsotonicCalibration())

    def fitted(rows: slice = some, **others: Any) -> Policy:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arguments: dict[str, Any] = {"costs": costs, "calibrator": scaling} | others
            return Policy.fit(Logits(logits[rows]), y[rows], **arguments)

    names = ["ant", "bee", "cat"]
    outputs, labels = MultiLabel.from_logits(logits[some], names), np.eye(3)[y[some]]
    platt = MultiLabelCalibrator("platt")
    both = LabelCosts({"cat": 9, "*": 3}, [4, 5, 6], review=0.4, review_row=1)
    capped = ErrorCosts([-20, -10, 0, 5, 6], [9, 9, 0, 1, 4])
    listed = ErrorCosts.linear(9, 1, values=[-1, 0, 2])
    means, stds, noise = logits[some, 0], 1 + features[some, 0] ** 2, rng.normal(size=(300, 20))
    target = means + rng.normal(size=300)
    draws = Samples(means[:, np.newaxis] + noise)
    levels = Quantiles(means[:, np.newaxis] + [-2.0, 0.0, 2.0], [0.05, 0.5, 0.95])
    return {
        "values": RegressionPolicy.fit(
            Normal(means, stds),
            target,
            costs=listed,
            review_cost=2,
            max_width=9,
            features=features[some],
            calibrator=VarianceScaling(),
        ),
        "values, quantiles": RegressionPolicy.fit(
            levels, target, costs=capped, calibrator=QuantileRecalibration()
        ),
        "values, draws": RegressionPolicy.fit(
            draws,
            target,
            costs=ErrorCosts.squared(),
            review_cost=1,
            max_relative_width=2,
            calibrator=None,
        ),
        "labels": MultiLabelPolicy.fit(outputs, labels, costs=both, calibrator=platt),
        "labels, F1": MultiLabelPolicy.fit(outputs, labels, f_beta=FBeta(), calibrator=platt),
        "temperature": fitted(),
        "bound and prior": fitted(risk=RiskBound(0.3), deploy_prior=[0.2, 0.3, 0.5]),
        "Mahalanobis gate": fitted(features=features[some], ood=OODGate(MahalanobisDistance())),
        "energy gate": fitted(ood=OODGate("energy", alpha=0.05)),
        "expressions": fitted(costs=grows.with_reject("0.3 * fee"), row_costs=by_row),
        "isotonic, one-vs-rest": fitted(calibrator=curves, rows=slice(None)),
        "auto": fitted(calibrator=AutoCalibrator(), rows=slice(None)),
        "forest": fitted(calibrator=ForestCalibration(n_estimators=3)),
        "radial basis functions": fitted(calibrator=StructuredMatrixScaling(basis="rbf")),
    }


def sound_states() -> dict[str, Record]:
    """Return states that services keep between runs, of simulated rows."""
    rng = np.random.default_rng(0)
    p = rng.random((40, 2))
    y = rng.random((40, 2)) < p
    stds, noise = np.ones(40), rng.normal(size=40)
    return {
        "alarm": SequentialAlarm().update(p[:, 0], y[:, 0]),
        "alarm, raised": SequentialAlarm().update(np.full(40, 0.99), y[:, 0]),
        "audit": AuditState.of(Batch.of(y[:, 0].astype(int), p[:, 0])),
        "regression": RegressionState.of(Batch.of(noise, Normal(np.zeros(40), stds))),
        "labels": MultiLabelState.of(Batch.of(y * 1.0, MultiLabel(p)), n_buckets=2),
    }


@final
class Corruptor:
    """Corrupts files at random, reproducibly by its seed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choice(self, values: Sequence[Any]) -> Any:
        """Return a copy of one of some values."""
        return deepcopy(values[int(self.rng.integers(len(values)))])

    def place(self, document: dict[str, Any]) -> tuple[Any, Any]:
        """Return a random entry of a document: its container and its key or index."""
        holder: Any = document
        while True:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            key = self.choice(keys)
            inner = holder[key]
            if not isinstance(inner, dict | list) or not inner or self.rng.random() < 0.1:
                return holder, key
            holder = inner


def flip_bits(corruptor: Corruptor, text: bytes) -> bytes:
    """Flip a few random bits."""
    content = bytearray(text)
    for place in corruptor.rng.integers(len(content), size=corruptor.rng.integers(1, 4)):
        content[place] ^= 1 << int(corruptor.rng.integers(8))
    return bytes(content)


def cut_short(corruptor: Corruptor, text: bytes) -> bytes:
    """Truncate the file, or cut a piece out of it."""
    low, high = sorted(corruptor.rng.integers(len(text), size=2))
    return text[:low] if corruptor.rng.random() < 0.5 else text[:low] + text[high:]


def in_document(
    change: Callable[[Corruptor, dict[str, Any]], None],
) -> Callable[[Corruptor, bytes], bytes]:
    """Return a function that changes the text through its JSON document."""

    def changed(corruptor: Corruptor, text: bytes) -> bytes:
        document = json.loads(text)
        for _ in range(corruptor.rng.integers(1, 3)):
            change(corruptor, document)
        return json.dumps(document).replace(json.dumps(DEEP), "[" * 9000 + "]" * 9000).encode()

    return changed


@in_document
def replace(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Replace an entry by an unusual value."""
    holder, key = corruptor.place(document)
    holder[key] = corruptor.choice(ODD)


@in_document
def nest(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Nest an entry in a few or in very many lists or objects."""
    holder, key = corruptor.place(document)
    if corruptor.rng.random() < 0.3:
        holder[key] = DEEP
        return
    for _ in range(corruptor.choice([1, 2, 10, 38, 60])):
        inner = holder[key]
        holder[key] = [inner] if corruptor.rng.random() < 0.7 else {"x": inner}


@in_document
def tweak(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Change a number, or one byte of an array."""
    for _ in range(50):
        holder, key = corruptor.place(document)
        value = holder[key]
        if isinstance(value, int | float) and not isinstance(value, bool):
            factor = corruptor.choice([-1, 0, 2, 0.5, 1e9, 1e-9, 1e200, 1.0])
            holder[key] = corruptor.choice([value * factor, value + 1, value - 1, -value])
            return
        if key == "base64" and isinstance(value, str) and value:
            content = bytearray(base64.b64decode(value))
            content[int(corruptor.rng.integers(len(content)))] ^= 1 << int(
                corruptor.rng.integers(8)
            )
            holder[key] = base64.b64encode(content).decode()
            return


@in_document
def leave_out(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Remove an entry."""
    holder, key = corruptor.place(document)
    del holder[key]


@in_document
def add(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Add an entry, or repeat one."""
    holder, key = corruptor.place(document)
    value = corruptor.choice([holder[key], corruptor.choice(ODD)])
    if isinstance(holder, list):
        holder.insert(int(corruptor.rng.integers(len(holder) + 1)), value)
    else:
        holder[corruptor.choice(["x", "class", "__class__", f"{key}_"])] = value


@in_document
def swap(corruptor: Corruptor, document: dict[str, Any]) -> None:
    """Swap two entries."""
    (one, first), (other, second) = corruptor.place(document), corruptor.place(document)
    one[first], other[second] = other[second], one[first]


CORRUPTIONS: dict[str, Callable[[Corruptor, bytes], bytes]] = {
    "bits flipped": flip_bits,
    "truncated": cut_short,
    "unusual value": replace,
    "nested value": nest,
    "number changed": tweak,
    "entry removed": leave_out,
    "entry added": add,
    "entries swapped": swap,
}


@final
@dataclass
class Outcomes:
    """The outcome of each file by kind of corruption, and everything that must not happen."""

    counts: Counter[tuple[str, bool, str]] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def lines(self) -> list[str]:
        """Return the table as lines of text."""
        total = sum(self.counts.values())
        n_new = sum(n for (_, has_new_checksum, _), n in self.counts.items() if has_new_checksum)
        outcomes = sorted({outcome for *_, outcome in self.counts})
        lines = [
            f"{total:,} corrupted policy files, {n_new:,} of them with a new checksum.",
            "",
            f"{'':<20} {'checksum':<8}" + "".join(f" {outcome:>20}" for outcome in outcomes),
        ]
        for name in CORRUPTIONS:
            for has_new_checksum in (False, True):
                row = [self.counts[name, has_new_checksum, outcome] for outcome in outcomes]
                cells = "".join(f" {n:>20,}" for n in row)
                lines.append(f"{name:<20} {'new' if has_new_checksum else 'old':<8}{cells}")
        quick = f"No file took {SLOW:g} seconds." if self.slowest < SLOW else "SOME FILES HANG."
        fine = "No other error, no warning, nothing executed."
        return [*lines, "", quick, *(self.faults[:20] or [fine])]


HEARD: list[str] = []
LISTENING: list[bool] = []  # one entry while loading


def listen(event: str, arguments: tuple[Any, ...]) -> None:
    """Record an audit event of executed code."""
    if LISTENING and event.startswith(EXECUTING):
        HEARD.append(f"{event} {arguments!r}"[:200])


@contextmanager
def executed_events() -> Iterator[list[str]]:
    """Record executed code inside the block; a hook cannot be removed, but can be switched off."""
    if listen not in HOOKS:
        HOOKS.append(listen)
        sys.addaudithook(listen)
    HEARD.clear()
    LISTENING.append(True)
    try:
        yield HEARD
    finally:
        LISTENING.clear()


HOOKS: list[Any] = []


def tried(path: Path) -> str:
    """Load a policy and decide with it; return the outcome, or raise what must not happen."""
    refused: DubitoError | None = None
    with executed_events() as heard:
        try:
            policy = load_policy(path)
        except DubitoError as error:
            refused = error
        assert not heard, heard
    if refused is not None:
        assert 20 < len(str(refused)) < 50_000, len(str(refused))
        return type(refused).__name__
    assert str(policy)
    rng = np.random.default_rng(1)
    if isinstance(policy, MultiLabelPolicy):
        found = policy.decide(rng.random((20, len(policy.label_names))))
        for numbers in (found.probabilities, found.expected_cost, found.review_value):
            assert np.isfinite(numbers).all()
        assert np.isin(found.action, range(3)).all()
        assert policy.explain(rng.random((20, len(policy.label_names))))
        return DECIDED
    if isinstance(policy, RegressionPolicy):
        values = policy.decide(*_values_for(policy, rng))
        for numbers in (values.value, values.expected_cost, values.review_value):
            assert np.isfinite(numbers).all()
        assert (values.low <= values.high).all()
        assert policy.explain(*_values_for(policy, rng))
        return DECIDED
    outputs = Logits(3 * rng.normal(size=(20, policy.costs.n_classes)))
    gate = policy.ood
    features = rng.normal(size=(20, gate.n_features or 1)) if gate else None
    row_costs = {name: 1 + rng.random(20) for name in policy.costs.columns} or None
    try:
        decisions = policy.decide(outputs, features, row_costs)
    except BadValueError as error:
        if not policy.costs.columns or error.argument != "row_costs":
            raise
        return UNDEFINED  # an expression that was changed may divide by 0
    for numbers in (decisions.probability, decisions.expected_cost, decisions.review_value):
        assert np.isfinite(numbers).all()
    assert ((decisions.probability >= 0) & (decisions.probability <= 1)).all()
    assert np.isin(decisions.action, range(policy.costs.n_actions)).all()
    assert policy.explain(outputs, features, row_costs)
    return DECIDED


def _values_for(policy: RegressionPolicy, rng: np.random.Generator) -> tuple[Any, Any]:
    """Return outputs of the kind of a policy, and features if it needs any."""
    means, n_features = rng.normal(size=20), 0 if policy.ood is None else policy.ood.n_features
    features = rng.normal(size=(20, n_features)) if n_features else None
    if policy.kind == "Normal":
        return Normal(means, np.ones(20)), features
    if policy.levels is None:
        return Samples(means[:, np.newaxis] + rng.normal(size=(20, 20))), features
    levels = np.array(policy.levels)
    return Quantiles(means[:, np.newaxis] + levels, levels), features


def fuzz(policies: Mapping[str, AnyPolicy], n_files: int, folder: Path, seed: int = 0) -> Outcomes:
    """Corrupt files of all policies in every way in turn, and try each."""
    texts = []
    for number, policy in enumerate(policies.values()):
        sound = folder / f"sound-{number}.json"
        policy.save(sound)
        load_policy(sound)  # imports what every load needs
        assert tried(sound) == DECIDED
        texts.append(sound.read_bytes())
    corruptor, result, path = Corruptor(seed), Outcomes(), folder / "corrupted.json"
    ways = list(CORRUPTIONS.items())
    for number in range(n_files):
        has_new_checksum = bool(number % 2)
        name, way = ways[number // 2 % len(ways)]
        start = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                for _ in range(N_TRIES if has_new_checksum else 1):
                    path.write_bytes(way(corruptor, corruptor.choice(texts)))
                    if has_new_checksum and update_checksum(path):
                        break
                outcome = tried(path)
        except Exception as error:  # any other error is a fault
            outcome = f"{type(error).__name__}!"
            result.faults.append(f"file {number}, {name}: {type(error).__name__}: {error}"[:300])
        result.slowest = max(result.slowest, time.perf_counter() - start)
        result.counts[name, has_new_checksum, outcome] += 1
    return result


def fuzz_states(states: Mapping[str, Record], n_states: int, seed: int = 0) -> Outcomes:
    """Corrupt the values of all states in every way of a document in turn, and read each."""
    corruptor, result = Corruptor(seed), Outcomes()
    ways = list(CORRUPTIONS.items())[2:]  # the others break the text, not the values
    texts = [(type(one), json.dumps(one.to_dict()).encode()) for one in states.values()]
    for number in range(n_states):
        name, way = ways[number % len(ways)]
        kind, text = corruptor.choice(texts)
        start = time.perf_counter()
        try:
            values = json.loads(way(corruptor, text))
        except RecursionError:  # Python's JSON reader refuses it
            values = DEEP
        try:
            with warnings.catch_warnings(), executed_events() as heard:
                warnings.simplefilter("error")
                found = kind.from_dict(values)
                if isinstance(found, SequentialAlarm):
                    found = found.update([0.7, 0.2], [1, 0])
                    assert np.isfinite([found.e_value, found.p_value]).all()
                assert found.to_dict()
                outcome = READS
        except DubitoError as error:
            outcome = type(error).__name__
        except Exception as error:  # any other error is a fault
            outcome = f"{type(error).__name__}!"
            result.faults.append(f"state {number}, {name}: {type(error).__name__}: {error}"[:300])
        if heard:
            result.faults.append(f"state {number}, {name}: {heard}"[:300])
        result.slowest = max(result.slowest, time.perf_counter() - start)
        result.counts[name, False, outcome] += 1
    return result


def update_checksum(path: Path) -> bool:
    """Give a file a new checksum, and return whether that was possible."""
    try:
        document, _ = decode_document(read_text(path), str(path))
        path.write_text(encode_document(document, "seal"))
    except DubitoError:
        return False
    return True


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        outcomes = fuzz(sound_policies(), options.files, Path(folder))
    states = fuzz_states(sound_states(), options.files)
    n_read = sum(n for (*_, outcome), n in states.counts.items() if outcome == READS)
    n_refused = options.files - n_read - len(states.faults)
    more = f"{options.files:,} corrupted states: {n_refused:,} refused, {n_read:,} read."
    outcomes.faults += states.faults
    outcomes.slowest = max(outcomes.slowest, states.slowest)
    table = outcomes.lines()
    text = "\n".join([table[0], more, *table[1:]]) + "\n"
    print(text, end="")
    if options.output:
        options.output.write_text(text)


if __name__ == "__main__":
    main()
