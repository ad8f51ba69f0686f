#!/usr/bin/env python3
"""Does the harness measure what it says? Cheap checks with SmolLM2 and, for sliding windows, Gemma; run.sh runs them first."""

import argparse
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

import numpy as np
import torch

import codec as codecs
import measure
import report
from model import Cache, Model
from needles import DEPTHS, Haystack, Tree
from texts import HAYSTACK, Texts

SCALE = measure.Scale(2, 256, 64, 1, 1, (256,))
ARGS = None


def prepare():
    parser = argparse.ArgumentParser()
    for name in ("work", "library", "texts", "tokura"):
        parser.add_argument(f"--{name}", type=pathlib.Path, required=name != "tokura")
    return parser.parse_known_args()


class Models(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = Model("smollm2", ARGS.work / "models/smollm2")
        cls.texts = Texts(ARGS.texts)
        cls.library = codecs.Library(ARGS.library)
        folder = ARGS.work / "harness" / measure.digest(cls.model, cls.texts, SCALE)
        cls.reference = measure.Reference(cls.model, cls.texts, SCALE, folder)
        cls.exact_needles = cls.reference.needles(None)

    def codec(self, spec):
        return codecs.make(spec, self.library, self.model.config, {})

    def all(self, spec):
        """Tokens, attention error and needles of a codec."""
        codec = self.codec(spec)
        rows, _ = self.reference.predictions([codec])
        return rows[0], self.reference.attention_error(codec), self.reference.needles(codec)

    def test_exact_codecs_change_nothing_at_all(self):
        for spec in ("null", "raw"):
            with self.subTest(spec):
                tokens, attention, needles = self.all(spec)
                self.assertTrue((tokens[..., 0] == tokens[..., 1]).all())
                self.assertTrue((tokens[..., 2] == 0).all())
                self.assertTrue((tokens[..., 3] == 1).all())
                self.assertTrue((attention == 0).all())
                for length, exact in self.exact_needles.items():
                    np.testing.assert_array_equal(needles[length], exact)

    def test_more_noise_is_worse(self):
        figures = []
        for spec in ("int8", "noise/int8", "kivi4", "noise/kivi4"):
            tokens, attention, _ = self.all(spec)
            figures.append((tokens[..., 2].mean(), np.median(attention)))
        for coarse in (2, 3):
            for fine in (0, 1):
                self.assertGreater(figures[coarse][0], 5 * figures[fine][0])
                self.assertGreater(figures[coarse][1], 2 * figures[fine][1])
        self.assertGreater(figures[0][0], 0)

    def test_noise_has_the_error_of_its_codec_and_another_seed_is_other_noise(self):
        k, v = (np.ascontiguousarray(x) for x in (self.reference.k, self.reference.v))
        coded = self.codec("kivi4").round_trip(k, v, 0)
        noisy, other = (self.codec(x).round_trip(k, v, 0) for x in ("noise/kivi4", "noise/kivi4/1"))
        rms = lambda x, exact: np.sqrt(((x.astype(np.float32) - exact) ** 2).mean((3, 4)))
        for side, exact in enumerate((k.astype(np.float32), v.astype(np.float32))):
            np.testing.assert_allclose(rms(noisy[side], exact), rms(coded[side], exact), rtol=0.1)
            self.assertFalse((noisy[side] == other[side]).all())
            sinks = (slice(None), slice(None), slice(None), slice(0, codecs.SINKS))
            np.testing.assert_array_equal(coded[side][sinks], exact[sinks])
            np.testing.assert_array_equal(noisy[side][sinks], exact[sinks])
            self.assertFalse((coded[side] == exact).all())

    def test_a_token_sees_the_coded_form_of_earlier_chunks_only(self):
        whole = measure.teacher_forcing(self.model, self.reference.ids, None, 0)
        coded = measure.teacher_forcing(self.model, self.reference.ids, self.codec("kivi4"), 0)
        self.assertTrue((whole[:, : measure.CHUNK] == coded[:, : measure.CHUNK]).all())
        self.assertFalse((whole[:, measure.CHUNK : 2 * measure.CHUNK] == coded[:, measure.CHUNK : 2 * measure.CHUNK]).all())

    def test_bytes_count_everything_that_is_stored(self):
        codec = self.codec("raw")
        k, v = (np.ascontiguousarray(x) for x in (self.reference.k, self.reference.v))
        codec.round_trip(k, v, 0)
        self.assertGreater(codec.part_bytes, codec.layer_bytes)
        self.assertGreater(codec.layer_bytes, k.nbytes + v.nbytes)
        self.assertLess(codec.part_bytes, 1.01 * (k.nbytes + v.nbytes))
        self.assertEqual(codec.tokens, k.shape[1] * k.shape[3])

    def test_needles_of_a_tree_score_as_each_alone(self):
        length = SCALE.needle_lengths[0]
        hay = self.reference.haystacks[length][0]
        for question, candidate in ((0, 0), (len(DEPTHS) - 1, 7)):
            ids = np.array(hay.questions[question] + hay.candidates[question][candidate])
            cache = Cache(self.model.config, 1, length + len(ids), self.model.device)
            self.model.forward([hay.ids], cache, 0)
            hidden = self.model.forward(ids[None], cache, length)
            logp = self.model.log_probabilities(hidden[0]).numpy()
            at = np.arange(len(hay.questions[question]) - 1, len(ids) - 1)
            alone = logp[at, ids[at + 1]].sum()
            self.assertAlmostEqual(alone, self.exact_needles[length][0, question, candidate], delta=0.02)

    def test_codecs_that_lose_the_document_lose_the_needles(self):
        length = SCALE.needle_lengths[0]
        tree = self.reference.trees[length]
        k, v = self.reference.kept(f"needles-{length}", None)
        blank = np.zeros_like(k[..., 4:, :]), np.zeros_like(v[..., 4:, :])
        cache = self.reference.cache(*(np.concatenate([x[..., :4, :], y], 3) for x, y in zip((k, v), blank)), len(tree.positions))
        self.assertLess((tree.score(self.model, cache, length).argmax(-1) == 0).mean(), 0.7)
        self.assertGreater((self.exact_needles[length].argmax(-1) == 0).mean(), 0.7)

    def test_a_document_has_its_needles_at_their_depths(self):
        base = self.texts.tokens(self.model, "prose", HAYSTACK[0], 512)
        hay = Haystack(self.model, base, 512, np.random.default_rng(3))
        text = self.model.tokenizer.decode([int(x) for x in hay.ids])
        self.assertEqual(len(hay.ids), 512)
        self.assertEqual(text.count("The secret number of"), len(DEPTHS))
        Tree([hay], 512)


class Windows(unittest.TestCase):
    def test_chunks_over_sliding_layers_give_what_one_run_gives(self):
        model, texts = Model("gemma3", ARGS.work / "models/gemma3"), Texts(ARGS.texts)
        ids = np.array([texts.tokens(model, "prose", HAYSTACK[0], 640)])
        whole = model.forward(ids, Cache(model.config, 1, 640, model.device), 0)[:, -64:]
        chunked = measure.teacher_forcing(model, ids, None, 576)
        self.assertLess((whole - chunked).norm() / whole.norm(), 1e-3)
        model.config.window = [0] * model.config.layers
        without = measure.teacher_forcing(model, ids, None, 576)
        self.assertGreater((without - chunked).norm() / whole.norm(), 1e-2)


class Statistics(unittest.TestCase):
    def test_identical_predictions_have_an_interval_of_zero_width(self):
        tokens = np.random.default_rng(0).random((3, 1024, 4)).astype(np.float32)
        tokens[..., 1], tokens[..., 2] = tokens[..., 0], 0
        figures = measure.summarize_predictions(tokens, 1024)
        self.assertEqual(figures["dppl"], 0)
        self.assertEqual(figures["dppl_95"], [0, 0])

    def test_the_interval_is_as_wide_as_the_spans_differ(self):
        tokens = np.zeros((4, 1024, 4))
        tokens[:, :, 1] = 0.01
        self.assertAlmostEqual(measure.summarize_predictions(tokens, 1024)["dppl"], 100 * np.expm1(0.01), places=9)
        self.assertAlmostEqual(np.ptp(measure.summarize_predictions(tokens, 1024)["dppl_95"]), 0, places=9)
        tokens[::2, :, 1] = 0.03
        low, high = measure.summarize_predictions(tokens, 1024)["dppl_95"]
        self.assertLess(low, 1.6)
        self.assertGreater(high, 2.4)

    def test_the_front_has_what_nothing_beats(self):
        points = {"a": (4, 1.0), "b": (4, 2.0), "c": (8, 0.5), "d": (9, 0.6), "e": (3, 3.0)}
        self.assertEqual(report.front(points), {"a", "c", "e"})


    def test_figures_that_were_not_measured_again_are_kept(self):
        result = lambda codec, bits: {codec: {"codec": codec, "bits_per_element": bits}}
        old = {"scale": "large", "settings": 1, "models": {"a": result("x", 1) | result("y", 2), "b": result("x", 3)}, "others": {}}
        new = {"scale": "large", "settings": 1, "models": {"a": result("y", 4)}}
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.object(report, "KEPT", pathlib.Path(folder) / "figures.json"):
            self.assertEqual(report.merged(new), new)
            report.keep(old)
            self.assertEqual(report.kept(), old)
            self.assertEqual(report.merged(new)["models"], {"a": result("x", 1) | result("y", 4), "b": result("x", 3)})
            for codec, bits in (("y", 5), ("z", 6)):  # another scale stays apart
                report.keep(report.merged({"scale": "quick", "settings": 2, "models": {"a": result(codec, bits)}}))
            apart = {"settings": 2, "models": {"a": result("y", 5) | result("z", 6)}}
            self.assertEqual(report.kept(), old | {"others": {"quick": apart}})


if __name__ == "__main__":
    ARGS, rest = prepare()
    torch.set_num_threads(1)
    unittest.main(argv=sys.argv[:1] + rest)
