"""The few-shot experiment on a small scale: subsets, guides, runs that can be killed, result files and the table."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from rich.console import Console
from typer.testing import CliRunner

from gdkl import GdklError, datasets, infinite, metrics
from gdkl.cli.app import app
from gdkl.paper import cifar, fewshot, fewshot_data, fewshot_mean, fewshot_table, image_runs, published
from gdkl.paper.fewshot_guides import GuideName, guide_kernel
from gdkl.paper.results import read_result
from gdkl.training import Callback

CPU = torch.device("cpu")
GDKL_DATA = os.environ.get("GDKL_DATA")
SMALL = fewshot.Protocol(gdkl_iterations=6, other_iterations=6, depth=10, widen_factor=1)


def _images(n, seed):
    """Three classes of 8 x 8 colour images that differ by their brightness, as uint8."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n) % 3)
    X = rng.normal(60 * y[:, None, None, None] + 60, 25, size=(n, 3, 8, 8)).clip(0, 255).astype(np.uint8)
    return datasets.ImageSet(X, y, ("a", "b", "c"), name="cifar10")


@pytest.fixture
def small(monkeypatch):
    """A stand-in for CIFAR-10, small enough for a test."""
    sets = {"cifar10": _images(90, 0), "cifar10-test": _images(60, 1)}
    monkeypatch.setattr(datasets, "load_images", lambda name, data_dir=None: sets[name])
    return sets


class TestSubsets:
    @pytest.mark.parametrize("n", fewshot_data.SIZES)
    def test_the_papers_indices_are_distinct_and_inside(self, n):
        indices = fewshot_data.paper_indices(n)
        assert len(set(indices.tolist())) == n
        assert 0 <= indices.min() < indices.max() < 50_000

    def test_the_paper_has_no_other_size(self):
        with pytest.raises(GdklError, match="50, 100, 200, 400, 800"):
            fewshot_data.paper_indices(60)

    def test_a_draw_has_as_many_of_each_class(self):
        labels = np.random.default_rng(0).integers(5, size=400)
        drawn = fewshot_data.stratified_indices(labels, 52, seed=1)
        assert len(set(drawn.tolist())) == 52
        assert sorted(np.bincount(labels[drawn])) == [10, 10, 10, 11, 11]
        np.testing.assert_array_equal(drawn, fewshot_data.stratified_indices(labels, 52, seed=1))
        assert set(drawn) != set(fewshot_data.stratified_indices(labels, 52, seed=2))
        with pytest.raises(GdklError, match="cannot draw"):
            fewshot_data.stratified_indices(labels, 401, seed=0)

    def test_a_file_with_some_images_serves_as_the_whole(self, small, tmp_path, monkeypatch):
        digest = fewshot_data._labels_digest(small["cifar10"].y)
        monkeypatch.setattr(fewshot_data, "_subsets", lambda: {"labels_sha256": digest, "subsets": {}})
        whole = fewshot_data.load_task(12, 5, tmp_path)
        count = fewshot_data.write_subset(tmp_path / fewshot_data.SUBSET_FILE, [(12, 5), (6, 5)])
        assert 12 <= count <= 18
        monkeypatch.setitem(small, "cifar10", None)
        task = fewshot_data.load_task(12, 5, tmp_path)
        np.testing.assert_array_equal(task.train_images, whole.train_images)
        np.testing.assert_array_equal(task.train_labels, whole.train_labels)
        assert task.digest == whole.digest
        with pytest.raises(GdklError, match="lacks"):
            fewshot_data.load_task(12, 6, tmp_path)
        monkeypatch.setattr(fewshot_data, "_subsets", lambda: {"labels_sha256": "0" * 64, "subsets": {}})
        with pytest.raises(GdklError, match="does not hold the labels"):
            fewshot_data.load_task(12, 5, tmp_path)

    def test_images_that_are_not_the_papers_are_refused(self, small, monkeypatch):
        monkeypatch.setattr(fewshot_data, "paper_indices", np.arange)
        with pytest.raises(GdklError, match="not the paper's"):
            fewshot_data.load_task(50)

    @pytest.mark.parametrize("n", fewshot_data.SIZES)
    def test_the_papers_subsets_of_the_real_images(self, n):
        if not GDKL_DATA or not (Path(GDKL_DATA) / "cifar10-train-1of2.npz").is_file():
            pytest.skip("GDKL_DATA does not name a folder with cifar10-train-1of2.npz: set it to run this test")
        task = fewshot_data.load_task(n, data_dir=Path(GDKL_DATA))
        assert np.bincount(task.train_labels).tolist() == [n // 10] * 10
        assert len(task.test_labels) == 10_000

    def test_normalised_channels(self):
        images = np.random.default_rng(0).integers(256, size=(2, 3, 4, 4), dtype=np.uint8)
        expected = (images[1, 2] / 255 - 0.4408) / 0.2761
        np.testing.assert_allclose(fewshot_data.normalise(images)[1, 2], expected, rtol=1e-5, atol=1e-6)


class TestGuides:
    def test_the_published_layout_takes_the_width_for_channels(self):
        rows = torch.randn(4, 3 * 8 * 8, dtype=torch.float64)
        kernel = guide_kernel(GuideName.PUBLISHED, (3, 8, 8))
        images = rows.reshape(4, 3, 8, 8)
        # What the published code calls height, width and channels.
        as_read = torch.stack([images[:, :, :, channel] for channel in range(8)], dim=1)
        expected = infinite.wide_resnet(4).kernel(as_read)
        torch.testing.assert_close(kernel.gram(rows), expected)
        torch.testing.assert_close(kernel.cross(rows[:3], rows[1:]), expected[:3, 1:])
        torch.testing.assert_close(kernel.diagonal(rows), expected.diagonal())
        batched = rows.reshape(2, 1, 2, -1)
        torch.testing.assert_close(kernel.gram(batched)[1, 0], expected[2:, 2:])
        torch.testing.assert_close(kernel.cross(batched[:, 0], rows[None])[1], expected[2:])

    @pytest.mark.parametrize("name", [name for name in GuideName if name is not GuideName.POOLED])
    def test_every_guide_is_a_kernel(self, name):
        K = guide_kernel(name, (3, 8, 8)).gram(torch.randn(5, 192, dtype=torch.float64))
        assert float(torch.linalg.eigvalsh(K).min()) > 0

    def test_the_pooled_guide_forgets_where_things_are(self):
        kernel = guide_kernel(GuideName.POOLED, (1, 8, 8))
        image = torch.zeros(1, 8, 8, dtype=torch.float64)
        image[0, 2:4, 2:4] = 1
        other = image.roll(2, dims=2)
        K = kernel.gram(torch.stack([image.flatten(), other.flatten()]))
        assert float(K[0, 1] / K[0, 0]) > 0.99


class TestRuns:
    @pytest.mark.parametrize("method", list(fewshot.Method))
    def test_every_method_learns_and_is_scored(self, small, method, tmp_path):
        run = fewshot.Run(method, 30, (3,), draw=0, protocol=replace(SMALL, gdkl_iterations=40, other_iterations=40))
        [result] = fewshot.complete(run, tmp_path, data_dir=None, device=CPU)
        scores = result["splits"][0]["test"]
        assert scores["accuracy"] > 0.6
        assert np.isfinite(list(scores.values())).all()
        assert result["versions"]["torch"] == torch.__version__
        assert ("weight_decay" in result["protocol"]) != method.guided
        assert ("guide" in result["protocol"]) == method.guided
        guide = "-dense" if method.guided else ""
        names = {path.name for path in (tmp_path / "draw-0").iterdir()}
        assert names == {f"n30-{method}{guide}-seed3{suffix}" for suffix in (".json", ".npz")}
        assert run.finished(tmp_path) == [json.loads(json.dumps(result))]

    def test_scores_are_those_of_the_probabilities(self):
        rng = np.random.default_rng(0)
        probs = rng.dirichlet(np.ones(3), size=60)
        task = fewshot_data.FewShotTask(None, None, None, rng.integers(3, size=60), 3, "")
        found = image_runs.class_scores(probs, task.test_labels)
        assert found["log_likelihood"] == pytest.approx(-metrics.nll(probs, task.test_labels))
        assert found["mean_confidence"] == pytest.approx(probs.max(axis=1).mean())

    def test_the_mean_of_seeds_is_scored_by_its_probabilities(self, small, tmp_path):
        runs = [fewshot.Run(fewshot.Method.NN, 12, (seed,), draw=0, protocol=SMALL) for seed in (0, 1)]
        results = [fewshot.complete(run, tmp_path, data_dir=None, device=CPU)[0] for run in runs]
        paths = [run.path(tmp_path, seed) for seed, run in enumerate(runs)]
        mean = fewshot_mean.mean_of_seeds(results, paths)
        stored = [np.load(path.with_suffix(".npz")) for path in paths]
        probs = (stored[0]["mirrored"] + stored[1]["mirrored"]) / 2
        expected = metrics.nll(probs / probs.sum(axis=1, keepdims=True), stored[0]["labels"])
        assert mean["splits"][0]["mirrored"]["log_likelihood"] == pytest.approx(-expected, abs=1e-5)
        assert mean["mean_of_seeds"] == [0, 1]
        assert read_result(paths[0].with_name("n12-nn-mean-of-2.json")) == json.loads(json.dumps(mean))
        # The logarithm is concave: a mean is at least as good as its parts are on average.
        apart = np.mean([result["splits"][0]["test"]["log_likelihood"] for result in results])
        assert mean["splits"][0]["test"]["log_likelihood"] >= apart
        paths[1].with_suffix(".npz").unlink()
        assert fewshot_mean.mean_of_seeds(results, paths) is None

    def test_a_mirrored_view_does_not_know_left_from_right(self, small, tmp_path):
        task = fewshot_data.load_task(12, 0)
        turned = replace(task, test_images=task.test_images[..., ::-1].copy())
        run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), 0, SMALL)
        _, [views] = fewshot.run_task(run, task, device=CPU)
        _, [others] = fewshot.run_task(run, turned, device=CPU)
        np.testing.assert_allclose(views["mirrored"], others["mirrored"], atol=1e-6)
        assert np.abs(views["test"] - others["test"]).max() > 1e-3

    def test_a_killed_run_goes_on_and_ends_alike(self, small, tmp_path):
        run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), draw=0, protocol=SMALL)

        class Kill(Callback):
            def on_step(self, report):
                if report.step == 4:
                    raise SystemExit

        with pytest.raises(SystemExit):
            fewshot.complete(run, tmp_path / "a", data_dir=None, device=CPU, callbacks=[Kill()], checkpoint_seconds=0)
        assert [path.suffix for path in (tmp_path / "a" / "draw-0").iterdir()] == [".checkpoint"]
        [again] = fewshot.complete(run, tmp_path / "a", data_dir=None, device=CPU)
        [whole] = fewshot.complete(run, tmp_path / "b", data_dir=None, device=CPU)
        assert again["splits"] == whole["splits"]
        assert {path.suffix for path in (tmp_path / "a" / "draw-0").iterdir()} == {".json", ".npz"}

    @pytest.mark.parametrize("method", [fewshot.Method.GDKL, fewshot.Method.NN])
    def test_seeds_that_train_together_start_as_they_do_alone(self, small, method):
        protocol = replace(SMALL, gdkl_iterations=1, other_iterations=1, learning_rate=1e-12, dropout=0.0)
        task = fewshot_data.load_task(12, 0)
        together, _ = fewshot.run_task(fewshot.Run(method, 12, (4, 7), 0, protocol), task, device=CPU)
        for seed, result in zip((4, 7), together, strict=True):
            [alone], _ = fewshot.run_task(fewshot.Run(method, 12, (seed,), 0, protocol), task, device=CPU)
            if method is fewshot.Method.GDKL:
                # The head of a plain network is drawn after it, from the batch's generator.
                assert alone["splits"][0]["test"] == pytest.approx(result["splits"][0]["test"], rel=1e-3, abs=1e-3)
            assert result["trained_together"] == [4, 7]
            assert result["seed"] == seed

    def test_settings_are_chosen_on_other_images(self, small, tmp_path):
        run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), 3, SMALL, validation=True)
        [result] = fewshot.complete(run, tmp_path, data_dir=None, device=CPU)
        assert result["scored"] == "validation"
        names = [path.name for path in (tmp_path / "validation-3").glob("*.json")]
        assert names == [f"n12-gdkl-dense-scale64-beta3-softplus-{SMALL.gdkl_iterations}-random-both-seed0.json"]
        task = fewshot_data.load_task(12, 3, validation=True)
        rows = {image.tobytes() for image in task.train_images}
        assert not rows & {image.tobytes() for image in task.test_images}
        tests = {image.tobytes() for image in small["cifar10-test"].X}
        assert not tests & {image.tobytes() for image in task.test_images}
        with pytest.raises(GdklError, match="not chosen on the paper's"):
            fewshot_data.load_task(12, validation=True)

    def test_the_students_scale_is_set(self, small):
        task = fewshot_data.load_task(12, 0)
        run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), 0, replace(SMALL, guide_scale=3.0))
        [result], _ = fewshot.run_task(run, task, device=CPU)
        assert result["guide_fit"]["student_scale"] == 3
        run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), 0, replace(SMALL, guide_scale=None))
        [result], _ = fewshot.run_task(run, task, device=CPU)
        curve = result["guide_fit"]["curve"]
        assert result["guide_fit"]["student_scale"] == float(max(curve, key=curve.get))

    def test_which_halves_are_held_out_is_in_the_result(self, small, tmp_path):
        runs = [fewshot.Run(fewshot.Method.GDKL, 12, (0,), 0, replace(SMALL, both_ways=on)) for on in (False, True)]
        plain, changed = (fewshot.complete(run, tmp_path, data_dir=None, device=CPU)[0] for run in runs)
        assert "both_ways" not in plain["protocol"]
        assert changed["protocol"]["both_ways"] is True
        assert changed["splits"] != plain["splits"]
        # The file is the second run's now.
        assert [run.finished(tmp_path) is None for run in runs] == [True, False]

    @pytest.mark.parametrize("method", [fewshot.Method.GDKL, fewshot.Method.DKL, fewshot.Method.NN])
    def test_images_that_are_altered_are_in_the_result(self, small, tmp_path, method):
        runs = [fewshot.Run(method, 12, (0,), 0, replace(SMALL, augment=on)) for on in (False, True)]
        plain, changed = (fewshot.complete(run, tmp_path, data_dir=None, device=CPU)[0] for run in runs)
        assert "augment" not in plain["protocol"]
        assert changed["protocol"]["augment"] is True
        assert changed["splits"] != plain["splits"]
        # Neither takes the other's place.
        assert [run.finished(tmp_path) is None for run in runs] == [False, False]
        [again] = fewshot.complete(runs[1], tmp_path / "again", data_dir=None, device=CPU)
        assert again["splits"] == changed["splits"]

    def test_a_result_with_other_settings_is_put_aside(self, small, tmp_path):
        run, other = (
            fewshot.Run(fewshot.Method.NN, 12, (0,), 0, replace(SMALL, other_iterations=steps)) for steps in (2, 3)
        )
        fewshot.complete(run, tmp_path, data_dir=None, device=CPU)
        before = run.path(tmp_path, 0).read_bytes()
        assert fewshot.put_aside(run, tmp_path) == []
        [aside] = fewshot.put_aside(other, tmp_path)
        assert aside.read_bytes() == before
        assert aside.with_suffix(".npz").exists()
        assert not run.path(tmp_path, 0).exists()
        assert fewshot.put_aside(other, tmp_path) == []

    def test_the_guide_alone_sees_images_as_they_are(self):
        plain, changed = (
            fewshot.Run(fewshot.Method.NNGP, 12, (0,), 0, replace(SMALL, augment=on)) for on in (False, True)
        )
        assert plain.settings == changed.settings
        assert plain.path(Path(), 0) == changed.path(Path(), 0)

    def test_altered_images_have_twice_the_guide(self):
        weights = [
            fewshot.Run(fewshot.Method.GDKL, 400, (0,), 0, replace(SMALL, beta=beta, augment=on)).beta
            for beta, on in ((None, False), (None, True), (0.5, True))
        ]
        assert weights == [2.0, 4.0, 0.5]

    def test_the_parametrisation_is_the_kernels(self, small):
        task = fewshot_data.load_task(12, 0)
        scores: list[float] = []
        for way in fewshot.Parametrisation:
            run = fewshot.Run(fewshot.Method.GDKL, 12, (0,), 0, replace(SMALL, parametrisation=way))
            [result], _ = fewshot.run_task(run, task, device=CPU)
            assert result["protocol"]["parametrisation"] == way
            scores.append(result["splits"][0]["test"]["log_likelihood"])
        assert scores[0] != scores[1]

    @pytest.mark.parametrize("options", [{"algebra": "float16"}, {"guide_scale": 0.0}])
    def test_bad_settings_are_refused(self, options):
        with pytest.raises(GdklError, match=next(iter(options))):
            fewshot.Protocol(**options)


class TestCommand:
    WORDS = ("reproduce", "fewshot", "--device", "cpu", "--gdkl-steps", "3", "--dkl-steps", "3", "--depth", "10")

    def run(self, folder, *more):
        words = [*self.WORDS, "--widen-factor", "1", "--sizes", "9,12", "--seeds", "2", "--draw", "3"]
        return CliRunner().invoke(app, [*words, "--output", str(folder), *more])

    def test_results_are_printed_and_kept(self, small, tmp_path):
        done = self.run(tmp_path, "--methods", "gdkl,nngp")
        assert done.exit_code == 0, done.output
        files = sorted(path.name for path in (tmp_path / "fewshot" / "draw-3").glob("*.json"))
        # Two sizes, two methods, two seeds; the guide alone is one model, whose seeds have no mean.
        assert len(files) == 10
        assert files[:2] == ["n12-gdkl-dense-mean-of-2.json", "n12-gdkl-dense-seed0.json"]
        assert "mean of 2" in done.stdout
        again = self.run(tmp_path, "--methods", "gdkl,nngp")
        assert "8 of 8 runs: kept" in again.stderr
        assert again.stdout == done.stdout
        assert "kept" not in self.run(tmp_path, "--methods", "gdkl", "--beta", "0.5").stderr

    def test_seeds_together(self, small, tmp_path):
        done = self.run(tmp_path, "--methods", "gdkl", "--together")
        assert done.exit_code == 0, done.output
        result = json.loads((tmp_path / "fewshot" / "draw-3" / "n9-gdkl-dense-seed1.json").read_text())
        assert result["trained_together"] == [0, 1]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--methods", "gp_rbf"], "unknown method gp_rbf: use gdkl, dkl, nngp, nn"),
            (["--guide", "oracle"], "'oracle' is not one of 'dense'"),
            (["--sizes", "many"], "sizes='many'"),
            (["--draw", "mine"], "draw='mine'"),
            (["--draw", "paper"], "the paper has no subset of 9 images"),
            (["--algebra", "int8"], "algebra='int8'"),
        ],
    )
    def test_a_wrong_option_is_one_line(self, small, tmp_path, words, message):
        done = self.run(tmp_path, *words)
        assert done.exit_code == 2
        assert message in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert not list(tmp_path.rglob("*.json"))


def test_ours_stands_beside_the_papers():
    def result(seed, ll):
        test = {"log_likelihood": ll, "accuracy": 0.375, "ece": 0.03}
        shared = {"draw": "paper", "n": 200, "method": "gdkl", "protocol": {"guide": "dense"}}
        return {
            **shared,
            "fit_seconds": 100,
            "seconds_per_step": 0.02,
            "splits": [{"seed": seed, "test": test, "mirrored": test}],
        }

    console = Console(width=200, record=True, file=None)
    console.print(fewshot_table([result(0, -1.8), result(1, -1.9)]))
    text = console.export_text()
    for part in ("-1.850 ± 0.071", "-1.83 ± 0.01", "37.50 ± 0.00", "36.45 ± 0.72", "20.0"):
        assert part in text
    assert published("fewshot", "nn", "cifar10.n800.acc").mean == 42.81
    # Trials of settings are of other images, one seed has no deviation, and the paper's figures are of neither.
    console.print(fewshot_table([{**result(0, -1.8), "scored": "validation"}]))
    text = console.export_text()
    assert "other training images" in text
    assert "test images" not in text
    assert "-1.800" in text
    assert "36.45" not in text


@pytest.mark.parametrize("protocol", [fewshot.Protocol, cifar.Protocol])
@pytest.mark.parametrize(("options", "message"), [({"depth": 27}, "depth=27"), ({"beta": float("inf")}, "beta=inf")])
def test_settings_that_no_run_could_have_are_refused_before_anything_is_read(protocol, options, message):
    with pytest.raises(GdklError, match=message):
        protocol(**options)
