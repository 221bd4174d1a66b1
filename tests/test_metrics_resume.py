"""A killed nearest-neighbor search goes on where it stopped, and only if it is the same search."""

import hashlib
import os
import signal
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save

from drlib.errors import UserError
from drlib.metrics import METRICS, sample, sample_distance
from drlib.metrics.resume import Resume, digest


def images(n, seed=0):
    return torch.rand(n, 1, 12, 12, generator=torch.Generator().manual_seed(seed))


A, B = images(20), images(30, seed=1)
B[4] = A[7]  # a copy of its class: PSNR inf
GRAY = B.clone()
GRAY[29] = 0.5
LABELS = torch.arange(20) % 3, torch.arange(30) % 3
PAIRS = 20 * 10  # in the classes


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(sample, "_ROWS", dict.fromkeys(METRICS, 4))


def search(metric, resume, progress=None, labels=LABELS, **options):
    return sample_distance(A, B, metric, *labels, progress=progress, resume=resume, **options)


def stop_after(pairs):
    def progress(done, total):
        assert total == PAIRS
        if done >= pairs:
            raise KeyboardInterrupt

    return progress


def blocks(folder):
    return sorted(folder.glob("*.safetensors"))


def equal(x, y):
    return all(
        torch.equal(u, v) if isinstance(u, torch.Tensor) else u == v
        for u, v in zip(vars(x).values(), vars(y).values(), strict=True)
    )


@pytest.mark.parametrize("labels", [LABELS, (None, None)], ids=["class", "all"])
@pytest.mark.parametrize("metric", METRICS)
def test_keeping_does_not_change_the_result(metric, labels, tmp_path):
    expected = sample_distance(A, B, metric, *labels)
    assert equal(search(metric, tmp_path / "kept" / "here", labels=labels), expected)
    assert equal(search(metric, str(tmp_path / "kept" / "here"), labels=labels), expected)


@pytest.mark.parametrize("metric", METRICS)
def test_interrupted_search_does_only_the_rest(metric, tmp_path):
    expected = sample_distance(A, B, metric, *LABELS)
    with pytest.raises(KeyboardInterrupt):
        search(metric, tmp_path, stop_after(100))
    # class 0 has 7 rows: blocks of 4 and 3; class 1 stopped at its first block
    assert len(blocks(tmp_path)) == 2
    done = []
    found = search(metric, tmp_path, lambda *pairs: done.append(pairs))
    assert done == [(70, 200), (110, 200), (140, 200), (180, 200), (200, 200)]
    assert equal(found, expected)
    assert len(blocks(tmp_path)) == 6


def test_finished_search_does_nothing(tmp_path, monkeypatch):
    expected = search("psnr", tmp_path)
    monkeypatch.setattr(sample, "_nearest", lambda *_, **options: pytest.fail("searched again"))
    done = []
    assert equal(search("psnr", tmp_path, lambda *pairs: done.append(pairs)), expected)
    assert expected.values.isinf().any()
    assert done[-1] == (PAIRS, PAIRS)


def test_blocks_of_another_size_go_on(tmp_path, monkeypatch):
    expected = sample_distance(A, B, "ssim", *LABELS)
    with pytest.raises(KeyboardInterrupt):
        search("ssim", tmp_path, stop_after(100))
    monkeypatch.setattr(sample, "_ROWS", dict.fromkeys(METRICS, 3))
    assert equal(search("ssim", tmp_path, memory_mb=64), expected)


def test_killed_process_leaves_what_it_finished(tmp_path):
    folder, stored = tmp_path / "kept", tmp_path / "images.pt"
    torch.save((A, B, LABELS), stored)
    code = (
        "import os, signal, sys, torch\n"
        "from drlib.metrics import sample, sample_distance\n"
        "sample._ROWS = dict.fromkeys(sample._ROWS, 4)\n"
        "a, b, labels = torch.load(sys.argv[1], weights_only=True)\n"
        "def progress(done, total):\n"
        "    if done >= 100:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "sample_distance(a, b, 'ssim', *labels, progress=progress, resume=sys.argv[2])\n"
    )
    run = subprocess.run([sys.executable, "-c", code, str(stored), str(folder)])
    assert run.returncode == -signal.SIGKILL
    assert len(blocks(folder)) == 2
    assert equal(search("ssim", folder), sample_distance(A, B, "ssim", *LABELS))


def test_a_file_that_was_being_written_is_no_result(tmp_path):
    (tmp_path / "search.json.1.partial").write_text("{")  # killed before anything was there
    found = search("mse", tmp_path)
    (tmp_path / f"{'0' * 64}.safetensors.1.partial").write_bytes(b"half")
    assert equal(search("mse", tmp_path), found)


@pytest.mark.parametrize("damage", ["cut", "changed"])
def test_damaged_block_is_computed_again(damage, tmp_path):
    expected = search("mse", tmp_path)
    names = [path.name for path in blocks(tmp_path)]
    path = blocks(tmp_path)[0]
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content) if damage == "changed" else bytes(content[:30]))
    assert equal(search("mse", tmp_path), expected)
    assert [path.name for path in blocks(tmp_path)] == names
    assert equal(search("mse", tmp_path), expected)


@pytest.mark.parametrize(
    "content", [save({}), save({"row": torch.arange(3), "index": torch.arange(3)}), b"no tensors", b""]
)
def test_block_of_something_else_is_passed_over(content, tmp_path):
    expected = search("mse", tmp_path)
    (tmp_path / f"{hashlib.sha256(content).hexdigest()}.safetensors").write_bytes(content)
    blocks(tmp_path)[0].unlink()
    assert equal(search("mse", tmp_path), expected)


OTHER = {
    "reconstructions": ((A.flip(0), B, "mse", *LABELS), "of other reconstructions"),
    "one pixel of a target": (
        (A, B.clone().index_fill_(0, torch.tensor(29), 0.5), "mse", *LABELS),
        "targets",
    ),
    "labels": ((A, B, "mse", LABELS[0].roll(1), LABELS[1]), "reconstruction_labels"),
    "no labels": ((A, B, "mse"), "reconstruction_labels, target_labels"),
    "metric": ((A, B, "psnr", *LABELS), "metric"),
    "precision": ((A.double(), B, "mse", *LABELS), "reconstructions"),
}


@pytest.mark.parametrize("case", sorted(OTHER))
def test_folder_of_another_search_is_refused_in_one_line(case, tmp_path):
    search("mse", tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    arguments, message = OTHER[case]
    with pytest.raises(UserError, match=message) as error:
        sample_distance(*arguments, resume=tmp_path)
    assert "\n" not in str(error.value)
    assert str(tmp_path) in str(error.value)
    assert before == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_folder_of_something_else_is_refused_in_one_line(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "search.json").write_text("{")
    listed = tmp_path / "listed"
    listed.mkdir()
    (listed / "search.json").write_text("[]")
    for folder in (tmp_path, file, damaged, listed):
        with pytest.raises(UserError, match="give a new") as error:
            search("mse", folder)
        assert "\n" not in str(error.value)
    assert file.read_text() == "mine"
    assert os.listdir(damaged) == ["search.json"]


def test_inputs_are_checked_before_the_folder_is_made(tmp_path):
    with pytest.raises(UserError, match="differ in image shape"):
        sample_distance(A, B[..., 1:], "mse", resume=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_digest():
    x = images(3)
    values = [x, x.double(), x.view(3, 12, 12, 1), x.flip(0), x[:2], torch.arange(3), None]
    assert len({digest(value) for value in values}) == len(values)
    assert digest(x.transpose(2, 3).contiguous().transpose(2, 3)) == digest(x)  # strides are no content


def test_digest_in_chunks(monkeypatch):
    from drlib.metrics import resume

    expected = digest(A)
    monkeypatch.setattr(resume, "_CHUNK", 100)
    assert digest(A) == expected


def test_blocks_are_read_as_written(tmp_path):
    kept = Resume(tmp_path, {"metric": "mse"})
    block = torch.tensor([5, 7]), torch.tensor([1, 0]), torch.tensor([0.1, torch.inf], dtype=torch.float64)
    kept.add(*block)
    (found,) = Resume(tmp_path, {"metric": "mse"}).finished()
    assert all(torch.equal(u, v) for u, v in zip(found, block, strict=True))
