"""Splits: balanced, nested, disjoint; every on-disk format; every bad input in one line."""

import gzip
import hashlib
import io
import struct
import subprocess
import sys
import tarfile

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import BaseModel

from drlib import data
from drlib.data import SPLIT_NAMES, DataSpec, describe, load_splits, overlaps, target_subset
from drlib.errors import UserError


def pictures(n, side=12, channels=0, seed=0):
    """n different uint8 images (n, side, side) or (n, side, side, channels)."""
    shape = (n, side, side, channels) if channels else (n, side, side)
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    content = header + array.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def write_mnist(folder, per_class=30, test_per_class=5, suffix=".gz"):
    for part, count, seed in (("train", per_class, 1), ("t10k", test_per_class, 2)):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", pictures(10 * count, 28, seed=seed))
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", np.tile(np.arange(10, dtype=np.uint8), count))


def cifar_record_bytes(labels, images):
    """Records of labels (n, b) and images (n, 32, 32, 3): the label bytes, then the planes R, G, B."""
    planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    return np.concatenate([labels.astype(np.uint8), planes], axis=1).tobytes()


def write_cifar(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    if name == "cifar10":
        files = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
        for seed, file in enumerate(files):
            labels = np.tile(np.arange(10), 4)[:, None]
            (folder / file).write_bytes(cifar_record_bytes(labels, pictures(40, 32, 3, seed)))
        (folder / "batches.meta.txt").write_text("\n".join(f"kind{i}" for i in range(10)) + "\n\n")
    else:
        for seed, (file, count) in enumerate({"train.bin": 6, "test.bin": 1}.items()):
            fine = np.tile(np.arange(100), count)
            labels = np.stack([fine // 5, fine], axis=1)
            (folder / file).write_bytes(cifar_record_bytes(labels, pictures(len(fine), 32, 3, 50 + seed)))


def write_folder(root, classes, per_class, channels=0):
    for index, name in enumerate(classes):
        (root / name).mkdir(parents=True)
        for i, image in enumerate(pictures(per_class, channels=channels, seed=index)):
            Image.fromarray(image).save(root / name / f"{i}.png")
    return root


def assert_sound(splits, spec):
    """What holds for every data set."""
    count = len(splits.classes)
    for name in SPLIT_NAMES:
        split = getattr(splits, name)
        assert split.images.shape == (len(split.labels), spec.channels, spec.side, spec.side)
        assert split.images.dtype == torch.float32
        assert split.labels.dtype == split.indices.dtype == torch.int64
        assert len(split.indices) == len(split.labels)
        if len(split):
            assert split.images.min() >= 0
            assert split.images.max() <= 1
    for split in (splits.target, splits.holdout, splits.update):
        assert torch.equal(split.labels, torch.arange(len(split)) % count)  # cyclic: balanced and nested
    indices = torch.cat([getattr(splits, name).indices for name in SPLIT_NAMES])
    assert len(indices.unique()) == len(indices)
    assert len(overlaps(splits)) == 10
    assert sum(overlaps(splits).values()) == 0


def one_line(error):
    assert "\n" not in str(error.value)
    return str(error.value)


# --- digits and faces ---


def test_digits_have_the_splits_of_the_design():
    splits = load_splits(DataSpec())
    assert_sound(splits, DataSpec())
    assert (len(splits.target), len(splits.holdout), len(splits.update)) == (400, 250, 100)
    assert splits.test.labels.bincount().tolist() == [28, 32, 27, 33, 31]
    assert len(splits.auxiliary) == 896
    assert splits.classes == tuple("01234")
    assert splits.auxiliary_classes == tuple("56789")
    assert splits.native_side == 8
    assert splits.duplicates == 0
    # 896 of the classes 5 to 9 and 901 of 0 to 4: every image is somewhere
    assert sum(len(getattr(splits, name)) for name in SPLIT_NAMES) == 1797


def test_digits_are_the_images_of_scikit_learn():
    from sklearn.datasets import load_digits

    digits = load_digits()
    native = load_splits(DataSpec(side=8))
    for name in ("target", "auxiliary"):
        split = getattr(native, name)
        np.testing.assert_allclose(split.images[:, 0].numpy(), digits.images[split.indices] / 16, atol=1e-6)
        first = 0 if name == "target" else 5
        assert np.array_equal(split.labels.numpy() + first, digits.target[split.indices])
    # the same images at another size, in the same order; gray repeated for 3 channels
    large = load_splits(DataSpec(side=16, channels=3))
    assert torch.equal(large.target.indices, native.target.indices)
    assert torch.equal(large.target.images[:, 0], large.target.images[:, 2])
    expected = torch.nn.functional.interpolate(native.target.images, size=(16, 16), mode="bilinear")
    torch.testing.assert_close(large.target.images[:, :1], expected)


def test_target_subsets_are_nested_and_balanced():
    splits = load_splits(DataSpec())
    for n in (5, 50, 100, 400):
        subset = target_subset(splits, n)
        assert subset.labels.bincount(minlength=5).tolist() == [n // 5] * 5
        assert torch.equal(subset.indices, splits.target.indices[:n])
    odd = target_subset(splits, 7).labels.bincount(minlength=5)
    assert odd.max() - odd.min() == 1
    for n in (0, 401):
        with pytest.raises(UserError, match="1 to 400"):
            target_subset(splits, n)


def test_the_split_seed_decides_the_order():
    first = load_splits(DataSpec()).target.indices.clone()
    other = load_splits(DataSpec(split_seed=1)).target.indices
    data._load.cache_clear()
    again = load_splits(DataSpec()).target.indices
    assert torch.equal(first, again)
    assert not torch.equal(first.sort().values, other.sort().values)


def test_faces_share_their_classes():
    spec = DataSpec.of("lfw_subset")
    splits = load_splits(spec)
    assert_sound(splits, spec)
    assert [len(getattr(splits, name)) for name in SPLIT_NAMES] == [80, 40, 20, 20, 40]
    assert splits.classes == splits.auxiliary_classes == ("face", "non-face")
    assert (splits.target.indices[splits.target.labels == 0] < 100).all()
    assert (splits.auxiliary.indices[splits.auxiliary.labels == 1] >= 100).all()
    assert any("shares the target's classes" in note for note in splits.notes)


def test_each_face_can_be_its_own_class():
    spec = DataSpec.of("lfw_subset", mode="identity")
    splits = load_splits(spec)
    assert_sound(splits, spec)
    assert len(splits.classes) == len(splits.target) == 100
    assert sorted(splits.target.indices.tolist()) == list(range(100))
    assert len(splits.auxiliary) == 100
    assert splits.auxiliary_classes == ("non-face",)
    assert len(splits.holdout) == len(splits.update) == len(splits.test) == 0
    assert any("empty" in note for note in splits.notes)
    assert any("may show one person" in note for note in splits.notes)


# --- files in their true format ---


@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST/raw"), ("kmnist", "KMNIST/raw"), ("fashion_mnist", "")]
)
@pytest.mark.parametrize("suffix", [".gz", ""])
def test_mnist_like_sets_are_read_from_idx_files(tmp_path, name, folder, suffix):
    write_mnist(tmp_path / folder, suffix=suffix)
    spec = DataSpec.of(name, root=str(tmp_path))
    data.check(spec)
    splits = load_splits(spec)
    assert_sound(splits, spec)
    # 35 images a class: half of them target, half of the rest holdout, a fifth of the rest update
    assert [len(getattr(splits, name)) for name in SPLIT_NAMES] == [85, 45, 15, 30, 175]
    assert any("scaled down" in note for note in splits.notes)
    assert splits.target.indices.max() < 300  # never from the official test set
    assert (splits.test.indices >= 300).sum() == 25
    image = pictures(300, 28, seed=1)[splits.target.indices[0]]
    np.testing.assert_allclose(splits.target.images[0, 0].numpy(), image / 255, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "folder"), [("cifar10", "cifar-10-batches-bin"), ("cifar100", "cifar-100-binary")]
)
def test_cifar_is_read_from_its_binary_files(tmp_path, name, folder):
    write_cifar(tmp_path / folder, name)
    spec = DataSpec.of(name, root=str(tmp_path))
    splits = load_splits(spec)
    assert_sound(splits, spec)
    source = data._cifar(spec)
    index = int(splits.auxiliary.indices[0])
    label = int(source.labels[index])
    np.testing.assert_allclose(
        splits.auxiliary.images[0].permute(1, 2, 0), source.images[index] / 255, atol=1e-6
    )
    if name == "cifar10":
        assert len(splits.classes) == len(splits.auxiliary_classes) == 5
        assert splits.classes[0] == "kind0"
        assert np.array_equal(source.images[40:80], pictures(40, 32, 3, seed=1))
        assert splits.auxiliary_classes[splits.auxiliary.labels[0]] == f"kind{label}"
    else:
        assert len(splits.classes) == len(splits.auxiliary_classes) == 50
        assert splits.classes[:2] == ("0", "1")  # the fine labels, not the coarse ones
        assert splits.auxiliary_classes[splits.auxiliary.labels[0]] == str(label)
        assert any("numbered" in note for note in splits.notes)


def test_full_size_sources_get_the_sizes_of_the_paper():
    assert data._quotas(6824, (4000, 2000, 20, 4000), 5, shared=False) == (4000, 2000, 20, 4000)
    assert data._quotas(600, (400, 100, 2, 400), 50, shared=False) == (400, 100, 2, 400)
    assert data._quotas(1, None, 5, shared=False)[:3] == (1, 0, 0)


def test_downloads_are_checked_and_only_known_files_are_taken_out(tmp_path, monkeypatch):
    write_cifar(tmp_path / "made", "cifar100")
    archive = tmp_path / "cifar-100-binary.tar.gz"
    with tarfile.open(archive, "w:gz") as out:
        for file in ("train.bin", "test.bin"):
            out.add(tmp_path / "made" / file, f"cifar-100-binary/{file}")
        escape = tarfile.TarInfo("../../escaped.txt")
        escape.size = 4
        out.addfile(escape, io.BytesIO(b"evil"))
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    root = tmp_path / "deep" / "root"
    spec = DataSpec.of("cifar100", root=str(root), download=True)

    monkeypatch.setitem(data._CIFAR_ARCHIVES, "cifar100", (archive.as_uri(), "0" * 64))
    with pytest.raises(UserError, match="checksum") as error:
        load_splits(spec)
    one_line(error)
    assert not list(root.iterdir())  # nothing half-written, nothing wrong

    monkeypatch.setitem(data._CIFAR_ARCHIVES, "cifar100", (archive.as_uri(), sha256))
    assert_sound(load_splits(spec), spec)
    assert not list(tmp_path.rglob("escaped.txt"))

    monkeypatch.setitem(data._CIFAR_ARCHIVES, "cifar100", ((tmp_path / "none").as_uri(), sha256))
    with pytest.raises(UserError, match="could not download"):
        load_splits(DataSpec.of("cifar100", root=str(tmp_path / "other"), download=True))


def test_mnist_is_downloaded_from_the_published_mirrors(tmp_path, monkeypatch):
    from torchvision import datasets

    write_mnist(tmp_path / "mirror")
    files = sorted((tmp_path / "mirror").iterdir())
    resources = [(file.name, hashlib.md5(file.read_bytes()).hexdigest()) for file in files]
    monkeypatch.setattr(datasets.KMNIST, "resources", resources)
    monkeypatch.setattr(
        datasets.KMNIST, "mirrors", [f"{(tmp_path / name).as_uri()}/" for name in ("gone", "mirror")]
    )
    spec = DataSpec.of("kmnist", root=str(tmp_path / "root"), download=True)
    assert_sound(load_splits(spec), spec)


# --- a user's own images ---


def test_a_folder_of_classes_sorted_as_numbers(tmp_path):
    write_folder(tmp_path, ["10", "2", "1", "33"], 20, channels=3)
    (tmp_path / ".hidden").mkdir()
    (tmp_path / "10" / ".DS_Store").write_bytes(b"x")
    (tmp_path / "10" / "notes.txt").write_text("not an image")
    spec = DataSpec(name=f"folder:{tmp_path}", side=12, channels=3)
    splits = load_splits(spec)
    assert_sound(splits, spec)
    assert splits.classes == ("1", "2")
    assert splits.auxiliary_classes == ("10", "33")
    assert [len(getattr(splits, name)) for name in SPLIT_NAMES] == [20, 10, 4, 6, 40]
    assert any("1 files without an image suffix" in note for note in splits.notes)


def test_two_classes_are_shared(tmp_path):
    write_folder(tmp_path, ["cat", "dog"], 20)
    splits = load_splits(DataSpec(name=f"folder:{tmp_path}", side=12))
    assert splits.classes == splits.auxiliary_classes == ("cat", "dog")
    assert [len(getattr(splits, name)) for name in SPLIT_NAMES] == [16, 8, 2, 6, 8]


@pytest.mark.parametrize("home", ["same", "other target class", "auxiliary class"])
def test_a_decoy_is_dropped_and_noted(tmp_path, home):
    """A target image that was copied elsewhere must not count as an unseen image."""
    root = write_folder(tmp_path, ["a", "b", "c", "d"], 20)
    spec = DataSpec(name=f"folder:{root}", side=12)
    before = load_splits(spec)
    victim = before.target.images[0]  # of class a
    original = sorted((root / "a").iterdir())[before.target.indices[0]]
    folder = {"same": "a", "other target class": "b", "auxiliary class": "d"}[home]
    Image.open(original).save(root / folder / "zz_decoy.bmp")

    splits = load_splits(spec)  # the cache must see that the folder changed
    assert_sound(splits, spec)
    assert splits.duplicates == describe(spec)["duplicates_dropped"] == 1
    assert any("1 duplicate image was dropped" in note for note in splits.notes)
    everywhere = torch.cat([getattr(splits, name).images for name in SPLIT_NAMES])
    assert (everywhere == victim).flatten(1).all(dim=1).sum() == 1
    assert not (splits.auxiliary.images == victim).flatten(1).all(dim=1).any()


def test_pictures_are_upright_and_cropped(tmp_path):
    tall = np.zeros((40, 20), dtype=np.uint8)
    tall[10:20] = 255  # the upper half of the central square
    exif = Image.Exif()
    exif[0x0112] = 3  # turned by 180 degrees
    Image.fromarray(tall).save(tmp_path / "plain.png")
    Image.fromarray(tall).save(tmp_path / "turned.png", exif=exif)
    plain = data._read_picture(tmp_path / "plain.png", 20, 1)[..., 0]
    assert (plain[:10] == 255).all()
    assert (plain[10:] == 0).all()
    assert np.array_equal(data._read_picture(tmp_path / "turned.png", 20, 1)[..., 0], plain[::-1, ::-1])
    assert data._read_picture(tmp_path / "plain.png", 8, 3).shape == (8, 8, 3)


@pytest.mark.parametrize("layout", ["nhw", "nhwc", "nchw", "float"])
def test_npz_layouts_mean_the_same(tmp_path, layout):
    images = pictures(80, 12, 1)
    array = {
        "nhw": images[..., 0],
        "nhwc": images,
        "nchw": images.transpose(0, 3, 1, 2),
        "float": (images / 255).astype(np.float64),
    }[layout]
    labels = np.array(["10", "9", "2", "1"] * 20) if layout == "nhwc" else np.array([10, 9, 2, 1] * 20)
    np.savez(tmp_path / "a.npz", images=array, labels=labels)
    spec = DataSpec(name=f"npz:{tmp_path / 'a.npz'}", side=12)
    splits = load_splits(spec)
    assert_sound(splits, spec)
    assert splits.classes == ("1", "2")
    assert splits.auxiliary_classes == ("9", "10")
    index = splits.target.indices[0]
    np.testing.assert_allclose(splits.target.images[0, 0].numpy(), images[index, ..., 0] / 255, atol=1e-6)


def test_color_becomes_gray_as_in_pillow():
    images = pictures(4, 16, 3)
    source = data._Source(images, np.zeros(4, dtype=np.int64), ("a",), "", "")
    gray = data._prepare(source, DataSpec(side=16), np.arange(4))[:, 0].numpy()
    expected = np.stack([np.asarray(Image.fromarray(image).convert("L")) for image in images])
    np.testing.assert_allclose(gray * 255, expected, atol=1.0)


# --- bad input ---


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"name": "digit"}, "did you mean 'digits'"),
        ({"name": "cifar"}, "unknown data set 'cifar'"),
        ({"name": "folder:"}, "needs a path"),
        ({"name": "mnist:/tmp"}, "unknown data set"),
        ({"side": 7}, "side"),
        ({"side": 65}, "side"),
        ({"channels": 2}, "channels"),
        ({"sied": 16}, "did you mean 'side'"),
        ({"mode": "identity"}, "only for lfw_subset"),
        ({"split_seed": -1}, "split_seed"),
    ],
)
def test_bad_specifications_are_refused_in_one_line(values, message):
    with pytest.raises(UserError, match=message) as error:
        DataSpec(**values)
    one_line(error)


def test_a_nested_specification_keeps_the_message():
    class Outer(BaseModel):
        data: DataSpec

    with pytest.raises(ValueError, match="did you mean 'digits'"):
        Outer(data={"name": "digist"})
    assert Outer(data={"name": "digits"}).data == DataSpec()


def test_unused_parameters_do_not_make_another_specification(tmp_path):
    assert DataSpec(root=str(tmp_path), download=True) == DataSpec()
    assert DataSpec.of("cifar10", side=16).model_dump()["channels"] == 3
    assert DataSpec(**DataSpec.of("mnist", root="x").model_dump()) == DataSpec.of("mnist", root="x")


def npz(**arrays):
    def make(path):
        np.savez(path / "a.npz", **arrays)
        return f"npz:{path / 'a.npz'}"

    return make


def raw(content):
    def make(path):
        (path / "a.npz").write_bytes(content)
        return f"npz:{path / 'a.npz'}"

    return make


def broken_folder(problem):
    def make(path):
        root = write_folder(path / "f", ["a", "b", "c", "d"], 3)
        if problem == "corrupt":
            (root / "b" / "bad.png").write_bytes((root / "b" / "0.png").read_bytes()[:60])
        elif problem == "empty":
            (root / "e").mkdir()
        elif problem == "16 bit":
            Image.fromarray(np.full((9, 9), 40000, dtype=np.uint16)).save(root / "c" / "deep.png")
        elif problem == "flat":
            return f"folder:{root / 'a'}"
        return f"folder:{root}"

    return make


GOOD = {"images": pictures(8), "labels": np.arange(8) % 4}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: f"npz:{path / 'none.npz'}", "no file .*none.npz"),
        (raw(b"not a zip file"), "cannot read"),
        (raw(b"PK\x03\x04 torn"), "cannot read"),
        (npz(labels=GOOD["labels"]), "no array 'images'"),
        (npz(images=GOOD["images"], labels=np.array([None] * 8)), "plain arrays"),
        (npz(images=GOOD["images"], labels=np.arange(7)), "labels must be"),
        (npz(images=GOOD["images"], labels=np.arange(8) / 8), "labels must be"),
        (npz(images=GOOD["images"].astype(np.int32), labels=GOOD["labels"]), "uint8 or float"),
        (npz(images=GOOD["images"].astype(np.float32), labels=GOOD["labels"]), r"\[0, 1\]"),
        (npz(images=np.full((8, 9, 9), np.nan), labels=GOOD["labels"]), r"\[0, 1\]"),
        (npz(images=np.zeros((8, 9), np.uint8), labels=GOOD["labels"]), "shape"),
        (npz(images=np.zeros((8, 3, 9, 3), np.uint8), labels=GOOD["labels"]), "could be channels"),
        (npz(images=np.zeros((8, 9, 9, 4), np.uint8), labels=GOOD["labels"]), "1 or 3 channels"),
        (npz(images=GOOD["images"], labels=np.zeros(8, np.int64)), "at least 2 classes"),
        (lambda path: f"folder:{path / 'none'}", "no folder .*none"),
        (broken_folder("flat"), "class sub-folders"),
        (broken_folder("corrupt"), "cannot read the image .*bad.png"),
        (broken_folder("empty"), "no images in .*e "),
        (broken_folder("16 bit"), "deep.png has more than 8 bits"),
    ],
)
def test_bad_images_of_a_user_are_refused_in_one_line(tmp_path, make, message):
    spec = DataSpec(name=make(tmp_path), side=12)
    with pytest.raises(UserError, match=message) as error:
        load_splits(spec)
    one_line(error)


@pytest.mark.parametrize("name", [*data.MNIST_LIKE, *data.CIFAR])
def test_missing_files_are_named_with_a_way_out(tmp_path, name):
    spec = DataSpec.of(name, root=str(tmp_path))
    for call in (data.check, load_splits):
        with pytest.raises(UserError, match="download: true") as error:
            call(spec)
        assert str(tmp_path) in one_line(error)


def test_damaged_files_are_refused(tmp_path):
    write_mnist(tmp_path / "m", suffix="")
    path = tmp_path / "m" / "train-images-idx3-ubyte"
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(UserError, match="damaged"):
        load_splits(DataSpec.of("mnist", root=str(tmp_path / "m")))
    path.write_bytes(b"hello")
    with pytest.raises(UserError, match="not an IDX file"):
        load_splits(DataSpec.of("mnist", root=str(tmp_path / "m")))
    write_cifar(tmp_path / "c", "cifar10")
    path = tmp_path / "c" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UserError, match="damaged"):
        load_splits(DataSpec.of("cifar10", root=str(tmp_path / "c")))


# --- facts about the module ---


def test_describe_gives_plain_values_with_license_and_source():
    import json

    facts = describe(DataSpec())
    assert json.loads(json.dumps(facts)) == facts
    assert facts["license"] == "CC BY 4.0"
    assert facts["splits"]["target"] == {"images": 400, "per_class": dict.fromkeys("01234", 80)}
    assert facts["overlaps"] == 0
    assert len(facts["fingerprint"]) == 64


def test_the_fingerprint_sees_one_changed_pixel():
    splits = load_splits(DataSpec())
    images = splits.target.images.clone()
    images[3, 0, 4, 5] += 0.1
    changed = data.Split(images, splits.target.labels, splits.target.indices)
    from dataclasses import replace

    assert data.fingerprint(replace(splits, target=changed)) != data.fingerprint(splits)


def test_overlaps_finds_a_planted_copy():
    from dataclasses import replace

    splits = load_splits(DataSpec())
    images = splits.holdout.images.clone()
    images[7] = splits.target.images[11]
    planted = replace(splits, holdout=data.Split(images, splits.holdout.labels, splits.holdout.indices))
    assert overlaps(planted)["target", "holdout"] == 1
    assert sum(overlaps(planted).values()) == 1


def test_checking_a_specification_imports_no_heavy_package():
    code = "import sys; from drlib.data import DataSpec, check; check(DataSpec()); import drlib.training; "
    code += "sys.exit(any(name in sys.modules for name in ('torch', 'numpy', 'sklearn', 'skimage', 'PIL')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
