"""Planted faults, each of which must turn a test red: ``make mutate`` (minutes).

Each fault is one that other implementations really had, or that makes numbers look fine and be wrong. The
checkout is copied, the fault planted in the copy, and the tests that should notice it are run there. A fault
that no test notices, and a fault whose place has moved, both fail this command.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("drlib", "tests", "notebooks", "pyproject.toml")


@dataclass(frozen=True)
class Fault:
    name: str
    file: str
    old: str
    new: str
    tests: str


FAULTS = (
    Fault(
        "jitter off",
        "drlib/optimize.py",
        "return torch.randint(-amount, amount + 1, (steps, n, 2), generator=generator, dtype=torch.int8)",
        "return torch.zeros((steps, n, 2), dtype=torch.int8)",
        "tests/test_optimize.py",
    ),
    Fault(
        "target in train mode",
        "drlib/types.py",
        "self.model = model.to(device).eval().requires_grad_(False)",
        "self.model = model.to(device).train().requires_grad_(False)",
        "tests/test_types.py",
    ),
    Fault(
        "wrong label",
        "drlib/attacks/mi_face.py",
        "targets = labels.to(access.device)",
        "targets = (labels.to(access.device) + 1) % access.spec.num_classes",
        "tests/test_attacks.py tests/test_attack_defects.py",
    ),
    Fault(
        "shuffled neighbors",
        "drlib/metrics/neighbors.py",
        "    return index, best",
        "    return index.flip(0), best",
        "tests/test_metrics_sample.py",
    ),
    Fault(
        "leaked holdout: the holdout is drawn from the training images",
        "drlib/tasks.py",
        "    return splits.holdout.images[order], splits.holdout.labels[order]",
        "    return splits.target.images[:n], splits.target.labels[:n]",
        "tests/test_study.py",
    ),
    Fault(
        "unseeded generator",
        "drlib/optimize.py",
        "return torch.rand((n, *shape), generator=generator)",
        "return torch.rand((n, *shape))",
        "tests/test_attacks.py",
    ),
    Fault(
        "wrong class: matching ignores the labels",
        "drlib/tasks.py",
        "made.images, others.images, metric.lower(), made.labels, others.labels if grouped else None",
        "made.images, others.images, metric.lower(), None, None",
        "tests/test_study.py",
    ),
    Fault(
        "a code change that does not change the key",
        "drlib/store.py",
        "canonical([kind, spec, parents, code_hash(code)])",
        "canonical([kind, spec, parents])",
        "tests/test_store.py",
    ),
    Fault(
        "the wall is open to compiled code",
        "drlib/guard.py",
        "    closed = [*folders, *embedded_data()]",
        '    closed = ["/nonexistent"]',
        "tests/test_threat_model.py",
    ),
    Fault(
        "every attack gets the auxiliary labels",
        "drlib/attacker.py",
        'tensors["labels"] if spec["auxiliary_labels"] else None',
        'tensors["labels"]',
        "tests/test_threat_model.py",
    ),
    Fault(
        "a black box whose model is in the attack's process",
        "drlib/attacker.py",
        '        return box.black_box(parents.address("target"))',
        '        target = restore(parents["target"])\n        return BlackBox(target.query, target.spec)',
        "tests/test_threat_model.py",
    ),
    Fault(
        "an attack's copy that is not sealed",
        "drlib/apart.py",
        "enforced = guard.seal(closed)",
        'enforced = "nothing"',
        "tests/test_threat_model.py",
    ),
    Fault(
        "queries as the attack counts them",
        "drlib/attacker.py",
        'counted = {"queries": box.asked() - before, "gradient_calls": 0}',
        "counted = {}",
        "tests/test_threat_model.py",
    ),
    Fault(
        "an outside attack is imported where a study is planned",
        "drlib/outside.py",
        '    if ":" not in name:',
        "    if True:",
        "tests/test_outside.py",
    ),
    Fault(
        "the update is reconstructed from the training images",
        "drlib/tasks.py",
        "return Split(splits.update.images[:size], splits.update.labels[:size]",
        "return Split(splits.target.images[:size], splits.target.labels[:size]",
        "tests/test_dynamic.py",
    ),
    Fault(
        "a damaged artifact is used",
        "drlib/store.py",
        'and meta["tensors_sha256"] == _sha256(folder / TENSORS)',
        "",
        "tests/test_store.py",
    ),
    Fault(
        "right about training images instead of memorization",
        "drlib/metrics/memorization.py",
        "values=with_sample - without,",
        "values=with_sample,",
        "tests/test_metrics_memorization.py",
    ),
    Fault(
        "a class that vanished counts as there",
        "drlib/metrics/memorization.py",
        "[:, labels.long()] > 0",
        "[:, labels.long()] >= 0",
        "tests/test_metrics_memorization.py",
    ),
    Fault(
        "shuffles across classes",
        "drlib/metrics/memorization.py",
        "shuffled = (keys + kept).argsort(1)",
        "shuffled = keys.argsort(1)",
        "tests/test_metrics_memorization.py",
    ),
    Fault(
        "re-splits that are always closer to the training half",
        "drlib/metrics/leakage.py",
        "return torch.where(inside[:, :, 0], closer, -closer)",
        "return closer.expand(len(trained), -1)",
        "tests/test_metrics_leakage.py",
    ),
    Fault(
        "covariances divided by n",
        "drlib/metrics/frechet.py",
        "a, b = (a - mean_a) / (n - 1) ** 0.5, (b - mean_b) / (m - 1) ** 0.5",
        "a, b = (a - mean_a) / n**0.5, (b - mean_b) / m**0.5",
        "tests/test_metrics_frechet.py",
    ),
    Fault(
        "the floor compares a half with itself",
        "drlib/metrics/frechet_uncertainty.py",
        "features[order[size : 2 * size]]",
        "features[order[:size]]",
        "tests/test_metrics_frechet_more.py",
    ),
    Fault(
        "a biased kernel distance",
        "drlib/metrics/offered.py",
        "(k.sum() - k.diagonal().sum())",
        "k.sum()",
        "tests/test_metrics_offered.py",
    ),
    Fault(
        "a target is its own neighbor",
        "drlib/metrics/offered.py",
        "own.kthvalue(neighbors + 1, dim=1)",
        "own.kthvalue(neighbors, dim=1)",
        "tests/test_metrics_offered.py",
    ),
    Fault(
        "the best normalized metric instead of the worst",
        "drlib/metrics/offered.py",
        "lowest = min(normalized",
        "lowest = max(normalized",
        "tests/test_metrics_offered.py",
    ),
    Fault(
        "a Hungarian assignment to the least similar",
        "drlib/metrics/pairing.py",
        "maximize=True",
        "maximize=False",
        "tests/test_metrics_offered.py tests/test_metrics_sample.py",
    ),
    Fault(
        "a point is a neighbor of its own",
        "drlib/embedding.py",
        "row[i] = np.inf",
        "row[i] = 0.0",
        "tests/test_embedding.py",
    ),
    Fault(
        "no constant C2",
        "drlib/metrics/ssim.py",
        "self.filter.columns[:, :1], C2)",
        "self.filter.columns[:, :1], 0.0)",
        "tests/test_metrics_ssim.py",
    ),
    Fault(
        "some of the sizes regenerate a table",
        "drlib/manifest/state.py",
        "not sizes <= set(_run_sizes(used))",
        "not sizes & set(_run_sizes(used))",
        "tests/test_manifest.py",
    ),
    Fault(
        "defended rows count as undefended",
        "drlib/manifest/sharing.py",
        'for name in ("defense", "variant",',
        'for name in ("variant",',
        "tests/test_manifest.py",
    ),
    Fault(
        "a verdict that takes rounding for a difference",
        "drlib/claims/judging.py",
        "if min(a.high, b.high) - max(a.low, b.low) > 1e-9 or a.value == b.value:",
        "if a.value == b.value:",
        "tests/test_claims.py",
    ),
    Fault(
        "a lower FID taken for a worse one",
        "drlib/claims/facts.py",
        'LOWER_IS_CLOSER = (FRECHET, "MSE")',
        'LOWER_IS_CLOSER = ("MSE",)',
        "tests/test_claims.py",
    ),
    Fault(
        "conclusions from attacks that have not converged",
        "drlib/claims/facts.py",
        "settled = tuple(one for one in series if one.attack not in left_out)",
        "settled = tuple(series)",
        "tests/test_claims.py",
    ),
    Fault(
        "where readings differ, the first is taken",
        "drlib/claims/judging.py",
        "return IN_PART if len(told) > 1 else told.pop() if told else UNJUDGED",
        "return verdicts[0]",
        "tests/test_claims.py",
    ),
    Fault(
        "equal n and equal k are one correction",
        "drlib/claims/facts.py",
        'RULED = {"n": (FRECHET,), "k": (*SAMPLE,',
        'RULED = {"n": (FRECHET, *SAMPLE), "k": (FRECHET, *SAMPLE,',
        "tests/test_claims.py",
    ),
    Fault(
        "correlations judged without their sign",
        "drlib/claims/comparing.py",
        "return agreement(found.value, a, b), low, high",
        "return abs(found.value), low, high",
        "tests/test_claims.py",
    ),
    Fault(
        "the best of a column is the largest for every metric",
        "drlib/published/layout.py",
        'sign = -1 if rows[0]["metric"] in LOWER_IS_CLOSER else 1',
        "sign = 1",
        "tests/test_published_layout.py",
    ),
    Fault(
        "dynamic attacks audited as if they had as many targets as training images",
        "drlib/audit/table.py",
        "UPDATE_IMAGES = 100\n",
        "UPDATE_IMAGES = 10_000\n",
        "tests/test_audit.py",
    ),
)


def red(fault: Fault) -> bool:
    """Plant the fault in a copy and run its tests there. True if one of them fails."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for name in COPIED:
            source = ROOT / name
            (shutil.copytree if source.is_dir() else shutil.copy)(source, copy / name)
        path = copy / fault.file
        text = path.read_text(encoding="utf-8")
        if text.count(fault.old) != 1:
            raise SystemExit(f"error: '{fault.name}' is nowhere in {fault.file} now; mend FAULTS")
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *fault.tests.split()]
        done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False)
        failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
        print(f"  {failed[0] if failed else done.stdout.strip().splitlines()[-1]}")
        return done.returncode == 1


def main(names: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not names or any(name in fault.name for name in names)]
    survived = []
    for fault in chosen:
        print(f"{fault.name}: {fault.file}", flush=True)
        if not red(fault):
            survived.append(fault.name)
    print(f"{len(chosen) - len(survived)} of {len(chosen)} faults turned a test red")
    for name in survived:
        print(f"SURVIVED: {name}")
    return 1 if survived or not chosen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
