"""Comparing outputs, and the table that is printed at the end."""

import math
from typing import Any


def against(outputs: list[dict[str, Any]], wanted: list[dict[str, Any] | None]) -> tuple[bool, float]:
    """Whether all tokens are the same, and the largest difference of a logprob, over what both have."""
    same, largest = len(outputs) == len(wanted) and bool(outputs), 0.0
    for output, want in zip(outputs, wanted, strict=False):
        if want is None or output["finish"] not in ("length", "stop"):
            same = False
            continue
        n = min(len(output["ids"]), len(want["ids"]))
        same = same and n > 0 and output["ids"][:n] == want["ids"][:n]
        pairs = zip(output["logprobs"][:n], want["logprobs"][:n], strict=True)
        largest = max([largest, *(abs(a - b) for a, b in pairs)])
    return same, largest


def agreement(output: dict[str, Any], want: dict[str, Any]) -> tuple[int, float]:
    """Leading tokens that are the same, and the largest difference of a logprob up to the first that is not."""
    n = 0
    while n < len(want["ids"]) and output["ids"][n] == want["ids"][n]:
        n += 1
    pairs = list(zip(output["logprobs"], want["logprobs"], strict=True))[: n or 1]
    return n, max(abs(a - b) for a, b in pairs)


def counted(result: dict[str, Any], name: str) -> int:
    """What the connector counted of something in all steps of a run."""
    return sum(int(step.get("counted", {}).get(name, 0)) for step in result["steps"])


def median(values: list[float]) -> float:
    """Middle of some values; not a number of none."""
    ordered = sorted(values)
    return ordered[len(ordered) // 2] if ordered else math.nan


def rows_of(result: dict[str, Any], step: int) -> str:
    """What was counted of loads in a step."""
    names = ("loaded_tokens", "load_failures", "lookup_timeouts")
    found = result["steps"][step].get("counted", {})
    return ", ".join(f"{name} {found[name]}" for name in names if name in found)


class Table:
    """Collects rows; prints them together."""

    def __init__(self) -> None:
        self._checks: list[tuple[str, str, bool, str]] = []
        self._figures: list[list[str]] = []

    def check(self, label: str, what: str, good: bool, detail: str) -> None:
        """One thing that had to hold."""
        self._checks.append((label, what, good, detail))
        print(f"  {'ok  ' if good else 'FAIL'} {label} | {what} | {detail}", flush=True)

    def plain_latency(self, label: str, ttft: float | None) -> None:
        """Time to the first token without Tokura."""
        self._figures.append([label, _ms(ttft)] + [""] * 8)

    def latency(self, label: str, result: dict[str, Any]) -> None:
        """Times of a run that loads."""
        for step in result["steps"]:
            self._add(label, step, {}, "")

    def codec(self, codec: str, want: list[dict[str, Any]], loaded: dict[str, Any], saved: dict[str, Any]) -> None:
        """A codec's outputs, times and bytes."""
        agreed = [agreement(o, w) for o, w in zip(loaded["results"], want, strict=True)]
        same = ", ".join(f"{n}/{len(w['ids'])} {d:.1e}" for (n, d), w in zip(agreed, want, strict=True))
        self._add(f"hit {codec}", loaded, saved, same)

    def _add(self, label: str, loaded: dict[str, Any], saved: dict[str, Any], same: str) -> None:
        found = loaded.get("counted", {})
        raw, wire = found.get("loaded_bytes", 0), found.get("loaded_wire_bytes", 0)
        self._figures.append(
            [
                label,
                " ".join(_ms(output["ttft"]) for output in loaded["results"]),
                f"{raw / 1e6:.1f}",
                f"{wire / 1e6:.1f}",
                _ms(median(found.get("lookup_seconds", []))),
                _ms(median(found.get("acquire_seconds", []))),
                " ".join(_ms(s) for s in found.get("load_wire_seconds", [])),
                " ".join(_ms(s) for s in found.get("load_decode_seconds", [])),
                # A save may end in the next step, before that loads.
                " ".join(_ms(step.get("counted", {})["save_seconds"][0]) for step in (saved, loaded) if _saves(step)),
                same,
            ]
        )

    def print(self) -> int:
        """Print everything; return how many checks failed."""
        print("\n| what | must | held | seen |\n| --- | --- | --- | --- |")
        for label, what, good, detail in self._checks:
            print(f"| {label} | {what} | {'yes' if good else 'NO'} | {detail} |")
        if self._figures:
            heads = "first token ms|raw MB|wire MB|lookup ms|acquire ms|wire ms|decode ms|save ms|same tokens, |Δlogprob|".split(
                "|", 8
            )
            print("\n| prompt of 600 (and more) tokens | " + " | ".join(heads[:-1] + ["same tokens, logprob difference"]) + " |")
            print("|" + " --- |" * (len(heads) + 1))
            for row in self._figures:
                print("| " + " | ".join(row) + " |")
        failed = sum(not good for _, _, good, _ in self._checks)
        print(f"\n{len(self._checks) - failed} passed, {failed} failed")
        return failed


def _saves(step: dict[str, Any]) -> bool:
    return bool(step.get("counted", {}).get("save_seconds"))


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None or math.isnan(seconds) else f"{seconds * 1e3:.1f}"
