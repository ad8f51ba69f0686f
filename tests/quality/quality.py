#!/usr/bin/env python3
"""Measures what every codec does to two language models. run.sh prepares everything that this needs and calls it.

Results are kept per model, codec and everything that they depend on (texts, scale, what the codec makes of a sample of KV),
so that a second run measures only what is missing or has changed. --report writes tables and plot into kernels/.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more than the free cores would spin against each other

import numpy as np
import torch

import capture
import codec as codecs
import measure
import report
from model import TITLES, Model
from texts import CALIBRATION, Texts

CONTROLS = ["null"] + [f"noise/{x}" for x in ("int8", "kivi4", "kivi2")]
SEEDS = [f"noise/kivi4/{seed}" for seed in range(1, 5)]
MODELS_SKIPPED = {"mla_fp8"}  # neither model has latent attention


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="models, texts, profiles and results are kept here")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libtokura_quality.so")
    parser.add_argument("--tokura", type=pathlib.Path, help="the program, which makes profiles; without it nothing has one")
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="where the text packages were unpacked")
    parser.add_argument("--models", default="smollm2,gemma3")
    parser.add_argument("--codecs", default="", help="specifications separated by commas (default: every preset, and controls)")
    parser.add_argument("--scale", choices=measure.SCALES, default="standard")
    parser.add_argument("--quick", action="store_true", help="--scale quick: a minute or two per model, figures without meaning")
    parser.add_argument("--device", default="cpu", help="cpu or cuda, for the models; codecs run on the CPU")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--together", type=int, default=4, help="codecs whose predictions are compared in one pass over the logits")
    parser.add_argument("--root", type=pathlib.Path, help="of the repository")
    parser.add_argument("--report", action="store_true", help="rewrite tables and plot in kernels/")
    args = parser.parse_args()
    args.scale = "quick" if args.quick else args.scale
    if args.report and not args.root:
        parser.error("--report needs --root")
    return args


def make_profiles(model, texts, args):
    """Paths of the profiles that a specification may name; "" is the one that is used when it names none."""
    folder = args.work / "profiles" / model.config.name
    return {"": capture.make_profile(model, texts, args.tokura, folder, len(CALIBRATION))}


class Run:
    """One model at one scale."""

    def __init__(self, args, name):
        self.args, self.name, self.scale = args, name, measure.SCALES[args.scale]
        start = time.monotonic()
        self.model = Model(name, args.work / "models" / name, args.device)
        self.library = codecs.Library(args.library)
        texts = Texts(args.texts)
        key = measure.digest(self.model, texts, self.scale)
        self.folder = args.work / "results" / f"{name}-{args.scale}-{key}"
        self.reference = measure.Reference(self.model, texts, self.scale, self.folder)
        self.needles = self.reference.needles(None)
        self.profiles = {} if args.tokura is None else make_profiles(self.model, texts, args)
        self.sample = [np.ascontiguousarray(x[:, :1, :, : 4 * measure.CHUNK]) for x in (self.reference.k, self.reference.v)]
        self.say(f"reference ready after {time.monotonic() - start:.0f} s")

    def say(self, text):
        print(f"{time.strftime('%H:%M:%S')} {self.name}: {text}", flush=True)

    def specifications(self):
        if self.args.codecs:
            return self.args.codecs.split(",")
        return CONTROLS + [x for x in self.library.presets() if x not in MODELS_SKIPPED] + ([] if self.args.quick else SEEDS)

    def run(self):
        """Measure what is missing; every result by specification."""
        todo, results = [], {}
        for spec in self.specifications():
            try:
                codec = codecs.make(spec, self.library, self.model.config, self.profiles, self.args.threads, self.args.device)
                path = self.folder / f"{spec.replace('/', '_')}-{codecs.behaviour(codec, *self.sample)}.json"
            except RuntimeError as error:
                self.say(f"{spec} left out: {error}")
                continue
            if path.exists():
                results[spec] = json.loads(path.read_text())
            else:
                todo.append((codec, path))
        for at in range(0, len(todo), self.args.together):
            for codec, path, result in self.measure(todo[at : at + self.args.together]):
                measure.write_json(path, result)
                results[codec.spec] = result
        return {spec: results[spec] for spec in self.specifications() if spec in results}

    def measure(self, batch):
        start = time.monotonic()
        rows, drifts = self.reference.predictions([codec for codec, _ in batch])
        for (codec, path), tokens, drift in zip(batch, rows, drifts):
            codec.reset()
            attention = self.reference.attention_error(codec)  # of whole documents: what the bytes per token are taken from
            result = {
                "codec": codec.spec, "bytes_per_token": codec.bytes_per_token(), "bits_per_element": codec.bits_per_element(),
                "layers_raw": getattr(codec, "layers_raw", 0), "hidden_error": drift,
                "attention": measure.summarize_attention(attention),
                "predictions": measure.summarize_predictions(tokens, self.scale.context),
                "needles": measure.summarize_needles(self.needles, self.reference.needles(codec)),
            }  # fmt: skip
            self.say(report.line(result))
            yield codec, path, result
        self.say(f"{len(batch)} codecs in {time.monotonic() - start:.0f} s")


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    figures = {"scale": args.scale, "settings": dataclasses.asdict(measure.SCALES[args.scale]), "models": {}}
    for name in args.models.split(","):
        figures["models"][TITLES[name]] = Run(args, name).run()
    args.work.mkdir(parents=True, exist_ok=True)
    measure.write_json(args.work / f"figures-{args.scale}.json", figures)
    if args.report:
        figures = report.merged(figures)
        report.keep(figures)
        report.write(args.root / "kernels", figures)


if __name__ == "__main__":
    main()
