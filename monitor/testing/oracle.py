"""A slow oracle for every estimate, and the contract checks of estimators.

The oracle follows the definitions record by record in plain Python and shares no code with the estimators.
"""

import itertools
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from monitor.core.estimate import Estimate, NoEstimate
from monitor.core.estimators import Form, Member
from monitor.core.estimators.conformal import Conformal
from monitor.core.estimators.ensemble import CalibratedEstimator, choose, estimate_forms, measure, results_of
from monitor.core.scores import Integers, Singles, label_outputs, outputs

Vector = Sequence[float]


@dataclass(frozen=True)
class Oracle:
    """Every estimate by its definition. The temperature is given, since its last digit can move a record."""

    reference: Sequence[Vector]
    labels: Sequence[int]
    temperature: float
    at: tuple[int, float] | None = None
    """Of two classes, the one that is decided from a probability on, and this probability."""
    named: Sequence[int] | None = None
    """The classes that the records of the reference name, if they decide."""

    def estimates(self, window: Sequence[Vector], named: Sequence[int] | None = None) -> dict[str, float]:
        """Return every estimator, its variants and set sizes, the consensus, `adaptive` and the disagreement."""
        found: dict[str, float] = {}
        for suffix, temperature in (("", None), ("_ts", self.temperature)):
            found |= self._stream(window, named, temperature, suffix)
        members = [
            "atc_mc_ts",
            "atc_ne_ts",
            "doc_ts",
            "cpc_acc_anchored_ts",
            "cpc_ac_anchored_ts",
            "calibrated_confidence",
        ]
        ranked = sorted(found[member] for member in members)
        # The lower quartile of six values is a quarter of the way from the second to the third.
        weight = self.adaptive_weight
        mixed = weight * found["atc_mc_ts"] + (1.0 - weight) * found.pop("unclipped_ts")
        found.pop("unclipped")
        return found | {
            "consensus": ranked[1] + 0.25 * (ranked[2] - ranked[1]),
            "disagreement": ranked[5] - ranked[0],
            "adaptive": _clip(mixed),
        }

    @cached_property
    def adaptive_weight(self) -> float:
        """The weight of ATC, from every pair of a right and a wrong decision of the reference."""
        decided = self.decisions(self.reference, self.named)
        confidences = [_single(_scaled(p, self.temperature)[d]) for p, d in zip(self.reference, decided, strict=True)]
        right, wrong = (
            [c for c, d, y in zip(confidences, decided, self.labels, strict=True) if (d == y) is wanted]
            for wanted in (True, False)
        )
        area = 0.75
        if right and wrong:
            wins = sum(1.0 if a > b else 0.5 if a == b else 0.0 for a in right for b in wrong)
            area = (wins / len(right) + 7.5) / (len(wrong) + 10.0)
        return _clip((area - 0.7) / 0.1)

    def watched(self, window: Sequence[Vector], named: Sequence[int] | None = None) -> list[list[float]]:
        """Return of each record the four numbers that a detector of changes watches."""
        accuracy, doc, conformal, _ = self._anchors
        return [
            [
                read,
                accuracy + score - conformal,
                accuracy + sure - doc,
                self._mixed(passed, accuracy + score - conformal),
            ]
            for read, passed, sure, score in self._parts(window, named)
        ]

    def watched_bounds(self) -> tuple[list[float], list[float]]:
        """Return the smallest and the largest possible values of these four."""
        accuracy, doc, conformal, classes = self._anchors
        # Another class than the most probable one may have no probability at all.
        least = 1.0 / classes if self.at is None and self.named is None else 0.0
        low, high = accuracy - conformal, accuracy + 1.0 - conformal
        return (
            [0.0, low, accuracy + least - doc, self._mixed(0.0, low)],
            [1.0, high, accuracy + 1.0 - doc, self._mixed(1.0, high)],
        )

    def _mixed(self, passed: float, conformal: float) -> float:
        return self.adaptive_weight * passed + (1.0 - self.adaptive_weight) * conformal

    @cached_property
    def _anchors(self) -> tuple[float, float, float, int]:
        """The accuracy, the mean confidence and the mean score in sets of the reference, and its classes."""
        parts = self._parts(self.reference, self.named)
        return (
            self._right / len(self.labels),
            _mean(p[2] for p in parts),
            _mean(p[3] for p in parts),
            len(self.reference[0]),
        )

    @cached_property
    def _right(self) -> int:
        decided = self.decisions(self.reference, self.named)
        return sum(d == y for d, y in zip(decided, self.labels, strict=True))

    def _parts(self, window: Sequence[Vector], named: Sequence[int] | None) -> list[tuple[float, float, float, float]]:
        """Return of each record its calibrated confidence, whether ATC counts it, its scaled confidence, and its mean score."""
        decided, scaled = (
            self.decisions(self.reference, self.named),
            [_scaled(p, self.temperature) for p in self.reference],
        )
        right = [d == y for d, y in zip(decided, self.labels, strict=True)]
        read = _curve([p[d] for p, d in zip(self.reference, decided, strict=True)], right)
        before = [p[d] for p, d in zip(scaled, decided, strict=True)]
        ranked = sorted((_single(p[y]) for p, y in zip(scaled, self.labels, strict=True)), reverse=True)
        threshold = ranked[min(len(ranked), self._right + 1) - 1]
        found = []
        for vector, d in zip(window, self.decisions(window, named), strict=True):
            p = _scaled(vector, self.temperature)
            passed = _thresholded(before, [p[d]], self._right)
            inside = [one for one in p if _single(one) >= threshold]
            found.append((read(_single(vector[d])), passed, p[d], _mean(inside) if inside else 0.0))
        return found

    def decisions(self, vectors: Sequence[Vector], named: Sequence[int] | None = None) -> list[int]:
        """Return what the device decides."""
        if named is not None:
            return list(named)
        if self.at is None:
            return [list(vector).index(max(vector)) for vector in vectors]
        wanted, threshold = self.at
        return [wanted if _single(vector[wanted]) >= _single(threshold) else 1 - wanted for vector in vectors]

    def performance(
        self, window: Sequence[Vector], named: Sequence[int] | None = None
    ) -> dict[tuple[str, int | None], float]:
        """Return metrics of each class and on average (class None), where they are defined, and for two classes AUROC."""
        classes = range(len(self.reference[0]))
        expected = []
        for vector in window:
            raw = [curve(_single(p)) for curve, p in zip(self._curves, vector, strict=True)]
            total = math.fsum(raw)
            expected.append([q / total if total else 1.0 / len(raw) for q in raw])
        decided = self.decisions(window, named)
        found: dict[tuple[str, int | None], float] = {}
        for k in classes:
            cells = {(case, call): 0.0 for case in (True, False) for call in (True, False)}
            for q, d in zip(expected, decided, strict=True):
                cells[True, d == k] += q[k]
                cells[False, d == k] += 1.0 - q[k]
            hits, misses, alarms, rest = cells.values()
            for name, top, bottom in (
                ("sensitivity", hits, hits + misses),
                ("specificity", rest, rest + alarms),
                ("ppv", hits, hits + alarms),
                ("npv", rest, rest + misses),
                ("f1", 2 * hits, 2 * hits + misses + alarms),
            ):
                if bottom > 1e-9:
                    found[name, k] = top / bottom
        for name in ("sensitivity", "specificity", "ppv", "npv", "f1"):
            defined = [found[name, k] for k in classes if (name, k) in found]
            if defined:
                found[name, None] = _mean(defined)
        if len(classes) == 2:
            found["auroc", None] = _auroc([p[1] for p in window], [q[1] for q in expected])
        return found

    @cached_property
    def _curves(self) -> list[Callable[[float], float]]:
        """Of each class against the rest."""
        classes = range(len(self.reference[0]))
        return [_curve([p[k] for p in self.reference], [y == k for y in self.labels]) for k in classes]

    def class_mix(self, window: Sequence[Vector]) -> list[float]:
        """Return the mix of classes whose mean scaled vectors come closest: the best over every set of classes."""
        scaled = np.array([_scaled(p, self.temperature) for p in self.reference])
        labels, classes = np.array(self.labels), range(scaled.shape[1])
        profiles = {k: scaled[labels == k].mean(axis=0) for k in classes if np.any(labels == k)}
        wanted = np.mean([_scaled(p, self.temperature) for p in window], axis=0)
        best, nearest = [math.nan] * len(classes), math.inf
        for size in range(1, len(profiles) + 1):
            for chosen in itertools.combinations(profiles, size):
                # The shares add up to 1: the last one is what the others leave.
                last = profiles[chosen[-1]]
                sides = np.array([profiles[k] - last for k in chosen[:-1]]).reshape(-1, len(classes)).T
                some = np.linalg.lstsq(sides, wanted - last, rcond=None)[0]
                shares = [*some.tolist(), 1.0 - float(some.sum())]
                distance = float(np.linalg.norm(sides @ some + last - wanted))
                if min(shares) >= 0.0 and distance < nearest - 1e-12:
                    mix = dict(zip(chosen, shares, strict=True))
                    best, nearest = [mix.get(k, 0.0) for k in classes], distance
        return best

    def _stream(
        self, window: Sequence[Vector], named: Sequence[int] | None, temperature: float | None, suffix: str
    ) -> dict[str, float]:
        reference = [_scaled(p, temperature) for p in self.reference]
        scaled = [_scaled(p, temperature) for p in window]
        decided = self.decisions(self.reference, self.named)
        right = [d == y for d, y in zip(decided, self.labels, strict=True)]
        before = [p[d] for p, d in zip(reference, decided, strict=True)]
        now = [p[d] for p, d in zip(scaled, self.decisions(window, named), strict=True)]
        m, r = len(right), sum(right)
        accuracy, level = r / m, _mean(now)
        found = {"ac": level}
        change = level - _mean(before)
        found["doc"], found["doc[absolute]"] = _clip(accuracy + change), _clip(accuracy + abs(change))
        found["atc_mc"] = _thresholded(before, now, r)
        found["atc_ne"] = _thresholded(
            [_negative_entropy(p) for p in reference], [_negative_entropy(p) for p in scaled], r
        )
        ranked = sorted((_single(p[y]) for p, y in zip(reference, self.labels, strict=True)), reverse=True)
        ranks = {"cpc_acc": min(m, r + 1), "cpc_ac": min(m, max(1, math.ceil(level * (m + 1) - 1e-9)))}
        for name, rank in ranks.items():
            threshold = ranked[rank - 1]
            found |= {name + key: value for key, value in _conformal(scaled, now, threshold).items()}
            zero = _conformal(reference, before, threshold)["[zero]"]
            found[f"{name}_anchored"] = _clip(accuracy + found[f"{name}[zero]"] - zero)
            if name == "cpc_acc":
                found["unclipped"] = accuracy + found[f"{name}[zero]"] - zero
        found["calibrated_confidence"] = _isotonic(before, right, now)
        return {_suffixed(name, suffix): value for name, value in found.items()}


def _suffixed(name: str, suffix: str) -> str:
    stem = min((name.find(mark) for mark in "[." if mark in name), default=len(name))
    return name[:stem] + suffix + name[stem:]


def _scaled(vector: Vector, temperature: float | None) -> list[float]:
    if temperature is None:
        return [float(p) for p in vector]
    logs = [math.log(max(p, 1e-12)) / temperature for p in vector]
    powers = [math.exp(log - max(logs)) for log in logs]
    return [power / math.fsum(powers) for power in powers]


def _single(value: float) -> float:
    """Round to float32."""
    return float(struct.unpack("f", struct.pack("f", value))[0])


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed)


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))


def _negative_entropy(vector: Vector) -> float:
    return math.fsum(p * math.log(p) for p in vector if p > 0.0)


def _thresholded(reference: list[float], window: list[float], right: int) -> float:
    if right == 0:
        return 0.0
    ranked = sorted((_single(score) for score in reference), reverse=True)
    threshold = ranked[right - 1]
    above = sum(score > threshold for score in ranked)
    weight = (right - above) / ranked.count(threshold)
    scores = [_single(score) for score in window]
    return (sum(score > threshold for score in scores) + weight * scores.count(threshold)) / len(scores)


def _conformal(window: Sequence[Vector], confidence: Sequence[float], threshold: float) -> dict[str, float]:
    sets = [[p for p in vector if _single(p) >= threshold] for vector in window]
    inside = [_mean(chosen) for chosen in sets if chosen]
    empty = [sure for sure, chosen in zip(confidence, sets, strict=True) if not chosen]
    found = {
        "": (math.fsum(inside) + math.fsum(empty)) / len(sets),
        "[zero]": math.fsum(inside) / len(sets),
        ".set_size": _mean(len(chosen) for chosen in sets),
        ".empty_share": len(empty) / len(sets),
    }
    return found | ({"[skip]": _mean(inside)} if inside else {})


def _isotonic(reference: list[float], right: list[bool], window: list[float]) -> float:
    read = _curve(reference, right)
    return _mean(read(_single(confidence)) for confidence in window)


def _auroc(scores: Sequence[float], cases: Sequence[float]) -> float:
    """The expected share of pairs of a case and another that are in order; ties count half."""
    ordered = math.fsum(
        case * (1.0 - other) * (1.0 if score > below else 0.5)
        for score, case in zip(scores, cases, strict=True)
        for below, other in zip(scores, cases, strict=True)
        if score >= below
    )
    return ordered / (math.fsum(cases) * math.fsum(1.0 - case for case in cases))


def _curve(reference: Sequence[float], right: Sequence[bool]) -> Callable[[float], float]:
    """Isotonic regression by its min-max formula, then linear interpolation."""
    pooled: dict[float, list[bool]] = {}
    for confidence, correct in zip(reference, right, strict=True):
        pooled.setdefault(_single(confidence), []).append(correct)
    knots = sorted(pooled)
    counts = [0]
    sums = [0]
    for knot in knots:
        counts.append(counts[-1] + len(pooled[knot]))
        sums.append(sums[-1] + sum(pooled[knot]))

    # At knot i: the largest over a ≤ i of the smallest mean from a to b ≥ i.
    heights = [0.0] * len(knots)
    for a in range(len(knots)):
        smallest = math.inf
        for b in reversed(range(a, len(knots))):
            smallest = min(smallest, (sums[b + 1] - sums[a]) / (counts[b + 1] - counts[a]))
            heights[b] = max(heights[b], smallest)

    def read(confidence: float) -> float:
        if confidence <= knots[0]:
            return heights[0]
        for left, low, up, high in zip(knots, heights, knots[1:], heights[1:], strict=False):
            if confidence <= up:
                return low + (high - low) * (confidence - left) / (up - left)
        return heights[-1]

    return read


def oracle_temperature(reference: Sequence[Vector], labels: Sequence[int]) -> float:
    """Minimise the mean negative log-likelihood over log T in [-4, 4] by golden-section search."""
    logs = [[math.log(max(p, 1e-12)) for p in vector] for vector in reference]

    def loss(log_temperature: float) -> float:
        inverse = math.exp(-log_temperature)
        losses = []
        for vector, label in zip(logs, labels, strict=True):
            top = max(vector)
            total = math.fsum(math.exp((log - top) * inverse) for log in vector)
            losses.append(math.log(total) - (vector[label] - top) * inverse)
        return _mean(losses)

    ratio = (math.sqrt(5.0) - 1.0) / 2.0
    low, high = -4.0, 4.0
    while high - low > 1e-9:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if loss(left) <= loss(right) else (left, high)
    return math.exp((low + high) / 2.0)


def check_estimator(member: Member, probabilities: Singles, labels: Integers) -> None:
    """Raise AssertionError unless a member, in all its forms, meets the contract of estimators."""
    reference = label_outputs(probabilities, labels)
    for form in member.forms():
        calibrated = member.family.calibrate(reference, scaled=form.scaled)
        ready = choose(CalibratedEstimator(Form(member, form.scaled, None), calibrated), form.variant)
        _check_contributions(ready, probabilities, reference.temperature)
        for size in sorted({min(size, len(probabilities)) for size in (0, 1, 2, len(probabilities))}):
            window = np.array(probabilities[:size])
            window.flags.writeable = False
            result = _ask(ready, window, reference.temperature)
            again = _ask(ready, window, reference.temperature)
            _require(result == again, f"{form.full_name}: the same call must return the same answer")
            _require(result.records == size, f"{form.full_name}: must return the number of records")
            if size == 0:
                _require(isinstance(result, NoEstimate), f"{form.full_name}: must return NoEstimate without records")
                continue
            _check_line(ready, window, reference.temperature)
            _require(
                isinstance(result, NoEstimate) or 0.0 <= result.accuracy <= 1.0,
                f"{form.full_name}: the estimate must be between 0 and 1, found {result}",
            )
            turned = _ask(ready, np.ascontiguousarray(window[::-1]), reference.temperature)
            _require(_alike(result, turned), f"{form.full_name}: the order of records must not matter")
        if member.family.returns_reference_accuracy and form.variant is None:
            own = _ask(ready, probabilities, reference.temperature)
            _require(
                isinstance(own, Estimate) and abs(own.accuracy - reference.accuracy) < 1e-12,
                f"{form.full_name}: must return the accuracy of the reference on the reference itself, {reference.accuracy}, found {own}",
            )


def _check_contributions(ready: CalibratedEstimator, probabilities: Singles, temperature: float) -> None:
    """Check the contributions that running totals need."""
    if isinstance(ready.estimator, Conformal):
        return
    scores = outputs(probabilities, temperature).scores(scaled=ready.form.scaled)
    rows = ready.estimator.contributions(scores, 0.2)
    name = ready.form.full_name
    _require(rows.shape[1:] == (len(probabilities),), f"{name}: must have one number per record in each row")
    _require(rows.min() >= 0.0 and rows.max() <= 1.0, f"{name}: contributions must be between 0 and 1")
    moved = ready.estimator.contributions(scores, 0.9)
    _require(np.array_equal(rows, moved), f"{name}: contributions must not depend on the confidence of the window")


def _check_line(ready: CalibratedEstimator, window: Singles, temperature: float) -> None:
    measured = measure([ready], lambda: (outputs(window, temperature),))
    found = estimate_forms([ready], measured).unclipped[0]
    wanted = ready.estimator.estimate(measured.means(ready), measured.mean_confidence(scaled=ready.form.scaled))
    _require(np.array_equal(found, wanted, equal_nan=True), f"{ready.form.full_name}: `line` must equal `estimate`")


def _ask(ready: CalibratedEstimator, window: Singles, temperature: float) -> Estimate | NoEstimate:
    return results_of([ready], lambda: (outputs(window, temperature),))[ready.form.full_name]


def _alike(one: Estimate | NoEstimate, other: Estimate | NoEstimate) -> bool:
    if isinstance(one, Estimate) and isinstance(other, Estimate):
        return abs(one.accuracy - other.accuracy) < 1e-12
    return one == other


def _require(holds: object, claim: str) -> None:
    if not holds:
        raise AssertionError(claim)
