"""Distances between reconstructions and target data: pure functions on tensors."""

from drlib.metrics.features import EXTRACTORS, Features, available, extract, metric_name
from drlib.metrics.frechet import FrechetDistance, frechet_distance
from drlib.metrics.frechet_statistics import FeatureStatistics, frechet_distance_of
from drlib.metrics.frechet_uncertainty import frechet_at, frechet_floor, frechet_interval
from drlib.metrics.interval import Interval, paired_bootstrap
from drlib.metrics.offered import combined_score, kernel_distance, prdc_coverage
from drlib.metrics.pairing import who_is_who
from drlib.metrics.sample import METRICS, SampleDistance, near_duplicates, sample_distance
from drlib.metrics.ssim import ssim_matrix, ssim_nearest

__all__ = [
    "EXTRACTORS",
    "METRICS",
    "FeatureStatistics",
    "Features",
    "FrechetDistance",
    "Interval",
    "SampleDistance",
    "available",
    "combined_score",
    "extract",
    "frechet_at",
    "frechet_distance",
    "frechet_distance_of",
    "frechet_floor",
    "frechet_interval",
    "kernel_distance",
    "metric_name",
    "near_duplicates",
    "paired_bootstrap",
    "prdc_coverage",
    "sample_distance",
    "ssim_matrix",
    "ssim_nearest",
    "who_is_who",
]
