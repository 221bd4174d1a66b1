"""t-SNE of several image sets at once, and the numbers that must stand beside such a picture.

t-SNE (van der Maaten and Hinton 2008) keeps near points near. It does not keep distances, sizes of clusters
or the gaps between them, and another seed or perplexity gives another picture. So an embedding comes with its
trustworthiness, and "overlap" is counted as the share of neighbors from the other set, in the picture and in
the space that the picture was made of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from drlib.errors import UserError, unknown

NEIGHBORS = 5


@dataclass(frozen=True)
class Embedding:
    """Points in the plane.

    Attributes:
        coordinates: float64 (n, 2); axes and scale mean nothing.
        trustworthiness: in [0, 1]: how far the nearest ``neighbors`` in the plane are near in the original
            space too; 1 if none of them is an intruder.
        divergence: the Kullback-Leibler divergence that t-SNE minimizes, at the end.
    """

    coordinates: np.ndarray
    trustworthiness: float
    divergence: float
    perplexity: float
    seed: int
    neighbors: int


def embed(
    points: np.ndarray,
    *,
    perplexity: float = 30.0,
    seed: int = 0,
    iterations: int = 1000,
    init: Literal["pca", "random"] = "pca",
    neighbors: int = NEIGHBORS,
) -> Embedding:
    """t-SNE of ``points`` (n, d) into the plane.

    The same points and seed on the same machine give the same coordinates.

    Args:
        points: (n, d) numbers, d at least 2; equal rows are allowed, unless all are. They are centered and
            scaled in float64 before t-SNE takes them in float32, so an offset costs no digits.
        perplexity: roughly how many neighbors each point keeps; at least 1 and below n / 3, since a point has
            about three times as many in its sum.
        seed: in [0, 2^32).
        iterations: steps of the optimization, at least 250.
        init: start from the first two principal components, or at random. From the former, the seed matters
            little: it only draws what the computation of the components leaves open.
        neighbors: of the trustworthiness; below n / 2.

    Raises:
        UserError: wrong shape, NaN, no spread or one beyond float32, a seed out of range, a perplexity or a
            number of neighbors that is too large for n.
    """
    from sklearn.manifold import TSNE, trustworthiness
    from threadpoolctl import threadpool_limits

    points = _check_points(points)
    n = len(points)
    if not perplexity >= 1:
        raise UserError(f"perplexity must be 1 or more, got {perplexity:g}")
    if not 3 * perplexity < n:
        raise UserError(
            f"perplexity {perplexity:g} is too large for {n} points: it must be below {n / 3:.4g}, "
            "a third of them"
        )
    if not 1 <= neighbors < n / 2:
        raise UserError(f"neighbors must lie in 1 to {(n - 1) // 2} with {n} points, got {neighbors}")
    if init not in ("pca", "random"):
        raise unknown("init", init, ("pca", "random"))
    if iterations < 250:
        raise UserError(f"iterations must be 250 or more, got {iterations}")
    if not 0 <= seed < 2**32:
        raise UserError(f"seed must lie in 0 to {2**32 - 1}, got {seed}")
    points = _centered(points)
    method = TSNE(
        n_components=2,
        perplexity=perplexity,
        init=init,
        learning_rate="auto",
        random_state=seed,
        max_iter=iterations,
        n_jobs=1,
    )
    with threadpool_limits(limits=1):  # another number of threads would give another picture
        found = method.fit_transform(points.astype(np.float32)).astype(np.float64)
    trust = float(trustworthiness(points, found, n_neighbors=neighbors))
    return Embedding(found, trust, float(method.kl_divergence_), float(perplexity), seed, neighbors)


@dataclass(frozen=True)
class Mixing:
    """How far two sets of points are mixed, seen from both sides.

    Attributes:
        from_first: mean share of the nearest neighbors of the first set's points that are of the second set.
        from_second: the same the other way round.
        expected_first, expected_second: what they are on average if it is drawn at random which points belong
            to which set.
        n, m: points of the two sets.
        reason: why the shares are NaN, else "".
    """

    from_first: float
    from_second: float
    expected_first: float
    expected_second: float
    n: int
    m: int
    reason: str = ""

    @property
    def first_ratio(self) -> float:
        """0: the first set keeps to itself. 1: as mixed as random parts of one set. Above 1: it has twins."""
        return self.from_first / self.expected_first

    @property
    def second_ratio(self) -> float:
        """The same for the second set."""
        return self.from_second / self.expected_second

    @property
    def ratio(self) -> float:
        """The smaller of the two: sets are mixed only if each is near the other.

        Far points in many dimensions are near to a few points in the middle of the other set, which are not
        near to them; so one side alone can look mixed.
        """
        return min(self.first_ratio, self.second_ratio)


def mixing(first: np.ndarray, second: np.ndarray, *, neighbors: int = NEIGHBORS) -> Mixing:
    """Share of neighbors from the other set, among the ``neighbors`` nearest of both sets together.

    Over all points together, this is one minus the statistic of the two-sample test of Schilling (1986) and
    Henze (1988). Where several points are equally far (copies), all of them count, each with an equal part.

    Args:
        first, second: (n, d) and (m, d).
        neighbors: at least 1. If there are fewer other points, the shares are NaN with the reason.

    Raises:
        UserError: wrong shapes, NaN, other dimensions.
    """
    first, second = _check_points(first), _check_points(second)
    if first.shape[1] != second.shape[1]:
        raise UserError(f"the two sets differ in dimension: {first.shape[1]} and {second.shape[1]}")
    if neighbors < 1:
        raise UserError(f"neighbors must be 1 or more, got {neighbors}")
    n, m = len(first), len(second)
    total = n + m
    if total - 1 < neighbors:
        reason = f"{neighbors} neighbors need {neighbors + 1} points or more, got {total}"
        return Mixing(*[float("nan")] * 4, n, m, reason)
    other = np.arange(total) >= n
    distance = _distances(np.concatenate([first, second]))
    shares = np.empty(total)
    for i, row in enumerate(distance):
        row[i] = np.inf  # a point is no neighbor of its own
        limit = np.partition(row, neighbors - 1)[neighbors - 1]
        limit_low, limit_high = limit * (1 - 1e-9), limit * (1 + 1e-9)
        surely, tied = row < limit_low, (row >= limit_low) & (row <= limit_high)
        foreign = other != other[i]
        part = (neighbors - surely.sum()) / tied.sum()
        shares[i] = ((surely & foreign).sum() + part * (tied & foreign).sum()) / neighbors
    expected = m / (total - 1), n / (total - 1)
    return Mixing(float(shares[:n].mean()), float(shares[n:].mean()), *expected, n, m)


def _centered(points: np.ndarray) -> np.ndarray:
    """Points about 0, of size about 1: without a spread, or where squares overflow, t-SNE crashes."""
    with np.errstate(over="ignore"):
        points = points - points[0]  # exactly 0 if all are equal
    spread, largest = np.abs(points).max(), np.finfo(np.float32).max
    if not 0 < spread <= largest:
        raise UserError(f"points must differ, by at most {largest:.3g} (float32), but do by {spread:.3g}")
    return (points - points.mean(0)) / spread


def _distances(points: np.ndarray) -> np.ndarray:
    """Euclidean distances of all pairs, exactly 0 for equal rows."""
    from scipy.spatial.distance import cdist

    return cdist(points, points)


def _check_points(points: object) -> np.ndarray:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.size == 0 or points.shape[1] < 2:
        raise UserError(f"points must have shape (n, d) with n >= 1 and d >= 2, got {points.shape}")
    bad = int((~np.isfinite(points)).any(1).sum())
    if bad:
        raise UserError(f"points contain NaN or infinite values in {bad} of {len(points)} rows")
    return points
