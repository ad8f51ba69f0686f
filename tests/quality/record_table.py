#!/usr/bin/env python3
"""How true declared errors are: the table of kernels/README.md, "The error record", by the real encoder.

run.sh --record prepares everything that this needs and calls it. The profile is of the calibration texts; the texts that it has not seen
are captured here, and one more is the conversation of tests/data/kv. For every codec and number of exemplar queries, and for the blocks'
own keys in their place, prints declared / true over all (block, layer) of all texts. The queries that really follow are the truth.
"""

import argparse
import json
import os
import pathlib
import subprocess

os.environ.setdefault("OMP_NUM_THREADS", "1")  # more than the free cores would spin against each other

import capture
from model import Model
from texts import CALIBRATION, Texts

UNSEEN = ["prose:secA1", "prose:secF1", "code:argparse", "code:pathlib", "licence:Apache-2.0"]
COUNTS = "64,32,24,16,8,4,2"
PROXY = 16


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="models, profiles and captures are kept here")
    parser.add_argument("--tokura", type=pathlib.Path, required=True, help="the program")
    parser.add_argument("--texts", type=pathlib.Path, required=True, help="where the text packages were unpacked")
    parser.add_argument("--root", type=pathlib.Path, required=True, help="of the repository")
    parser.add_argument("--library", help="not used")
    parser.add_argument("--codecs", default="int8,kivi4,kivi2")
    parser.add_argument("--counts", default=COUNTS, help="of exemplar queries")
    return parser.parse_args()


def prepare(args):
    """The profile, and the arguments that name each text's capture."""
    model, texts = Model("smollm2", args.work / "models" / "smollm2", "cpu"), Texts(args.texts)
    profile = capture.make_profile(model, texts, args.tokura, args.work / "profiles" / "smollm2", len(CALIBRATION))
    folder = args.work / "record"
    folder.mkdir(parents=True, exist_ok=True)
    data = args.root / "tests/data/kv"
    captures = [["--kv", data / "request_1.kvcap", "--prefix", data / "prefix.kvcap"]]
    for name in UNSEEN:
        path = folder / f"{name.replace(':', '-')}.kvcap"
        if not path.exists():
            ids = texts.tokens(model, *name.split(":"), capture.CONTEXT + capture.QUERIES)
            capture.write(path, model, capture.capture(model, ids))
        captures.append(["--kv", path])
    return profile, captures


def evaluate(args, text, codec, queries, profile):
    command = [args.tokura, "codec", "eval", *text, "--codec", codec, "--queries", str(queries), "--json", "-"]
    command += ["--profile", profile] if profile else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def row(label, results):
    blocks = [r["block_error"] for r in results]
    spread = lambda key: "{:.2f} … {:.2f}".format(min(b["ratio"][key] for b in blocks), max(b["ratio"][key] for b in blocks))
    mean = lambda values: 100 * sum(values) / len(results)
    within, bound = mean(b["within_25_percent"] for b in blocks), mean(r["declared_error"]["bound_share"] for r in results)
    lowest, highest = min(b["ratio"]["min"] for b in blocks), max(b["ratio"]["max"] for b in blocks)
    return f"| {label} | {within:.1f} % | {spread('p5')} | {spread('median')} | {spread('p95')} | {lowest:.2f}, {highest:.2f} | {bound:.1f} % |"


def main():
    args = parse_arguments()
    profile, captures = prepare(args)
    print("| codec, queries | within 0.8 … 1.25 (mean of texts) | 5 % (range over texts) | median | 95 % | lowest, highest | sequence bound holds |")
    print("|---|---|---|---|---|---|---|")
    for codec in args.codecs.split(","):
        for count in args.counts.split(","):
            print(row(f"`{codec}`, {count}", [evaluate(args, c, codec, count, profile) for c in captures]), flush=True)
        print(row(f"`{codec}`, own keys, {PROXY}", [evaluate(args, c, codec, PROXY, None) for c in captures]), flush=True)


if __name__ == "__main__":
    main()
