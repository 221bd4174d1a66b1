"""Pictures of reconstructions show what they must be compared with, and nothing that is not there."""

from __future__ import annotations

import torch

from drlib import plots
from drlib.data import DataSpec, load_splits, target_subset


def test_without_a_holdout_no_row_pretends_to_be_one():
    splits = load_splits(DataSpec())
    target = target_subset(splits, 20)
    images, labels = target.images[:4], target.labels[:4]
    rows, marks = plots.comparison_rows(images, labels, target, splits.holdout)
    assert list(rows) == ["reconstruction", "nearest target", "nearest holdout", "best possible"]
    assert marks["nearest target"].min() > 0.999 > marks["nearest holdout"].max()
    empty = type(target)(images=target.images[:0], labels=target.labels[:0], indices=target.indices[:0])
    rows, marks = plots.comparison_rows(images, labels, target, empty)
    assert list(rows) == ["reconstruction", "nearest target"] and list(marks) == ["nearest target"]
    assert torch.equal(rows["nearest target"], images)
