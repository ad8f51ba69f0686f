#!/usr/bin/env python3
"""How true declared errors are: the table of kernels/README.md, "The error record", by the real encoder.

    record_table.py --tokura PROGRAM --profile FILE --capture FILE [--capture PREFIX:FILE ...] [--codec NAME ...]

Captures are of texts that the profile has not seen; PREFIX is the capture that a request continues. For every codec and number of
exemplar queries, and for the blocks' own keys in their place, prints declared / true over all (block, layer) of all captures together.
"""

import argparse
import json
import subprocess

COUNTS = (64, 32, 16, 8, 4, 2)
PROXY = "own keys, 16"


def evaluate(args, capture: str, codec: str, extra: list[str]) -> dict:
    prefix, _, file = capture.rpartition(":")
    command = [args.tokura, "codec", "eval", "--kv", file, "--codec", codec, "--json", "-", *extra]
    command += ["--prefix", prefix] if prefix else []
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)


def row(label: str, results: list[dict]) -> str:
    blocks = [r["block_error"] for r in results]
    layers = [len(r["declared_error"]["per_layer"]) for r in results]
    mean = lambda values: sum(v * n for v, n in zip(values, layers)) / sum(layers)
    spread = lambda key: "{:.2f} … {:.2f}".format(min(b["ratio"][key] for b in blocks), max(b["ratio"][key] for b in blocks))
    within = 100 * sum(b["within_25_percent"] for b in blocks) / len(blocks)
    lowest, highest = min(b["ratio"]["min"] for b in blocks), max(b["ratio"]["max"] for b in blocks)
    bound = 100 * mean([r["declared_error"]["bound_share"] for r in results])
    return f"| {label} | {within:.1f} % | {spread('p5')} | {spread('median')} | {spread('p95')} | {lowest:.2f}, {highest:.2f} | {bound:.1f} % |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokura", required=True)
    parser.add_argument("--profile", required=True)
    parser.add_argument("--capture", action="append", required=True)
    parser.add_argument("--codec", action="append")
    args = parser.parse_args()
    print("| codec, queries | within 0.8 … 1.25 (mean of texts) | 5 % (range over texts) | median | 95 % | lowest, highest | sequence bound holds |")
    print("|---|---|---|---|---|---|---|")
    for codec in args.codec or ["int8", "kivi4", "kivi2"]:
        for count in COUNTS:
            extra = ["--profile", args.profile, "--queries", str(count)]
            print(row(f"`{codec}`, {count}", [evaluate(args, c, codec, extra) for c in args.capture]), flush=True)
        own = [evaluate(args, c, codec, ["--queries", "16"]) for c in args.capture]
        print(row(f"`{codec}`, {PROXY}", own), flush=True)


if __name__ == "__main__":
    main()
