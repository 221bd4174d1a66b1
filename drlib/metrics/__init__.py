"""Distances between reconstructions and target data: pure functions on tensors."""

from drlib.metrics.features import EXTRACTORS, Features, available, extract, metric_name
from drlib.metrics.frechet import FrechetDistance, frechet_distance
from drlib.metrics.interval import Interval, paired_bootstrap
from drlib.metrics.sample import METRICS, SampleDistance, near_duplicates, sample_distance
from drlib.metrics.ssim import ssim_matrix, ssim_nearest

__all__ = [
    "EXTRACTORS",
    "METRICS",
    "Features",
    "FrechetDistance",
    "Interval",
    "SampleDistance",
    "available",
    "extract",
    "frechet_distance",
    "metric_name",
    "near_duplicates",
    "paired_bootstrap",
    "sample_distance",
    "ssim_matrix",
    "ssim_nearest",
]
