#!/usr/bin/env python3
"""Tables and plot of quality.py's figures for kernels/README.md. Alone, writes them again from the kept figures."""

import html
import json
import math
import pathlib

BEGIN, END = "<!-- tests/quality: begin -->", "<!-- tests/quality: end -->"
PLOT = "quality.svg"
KEPT = pathlib.Path(__file__).with_name("figures.json")
WIDTH, HEIGHT, MARGIN = 470, 330, 46  # of one panel
LETTER = 6.6  # width


def line(result):
    """A result on one line, for the log."""
    p, a, n = result["predictions"], result["attention"], result["needles"]
    return (f"{result['codec']:18s} {result['bits_per_element']:6.3f} bits  attention {a['median']:.4f} p95 {a['p95']:.3f} worst {a['worst']:.3f}  "
            f"dPPL {p['dppl']:+.3f} % [{p['dppl_95'][0]:+.3f}, {p['dppl_95'][1]:+.3f}]  KLD {p['kld']:.5f}  top-1 {p['top1']:.2f} %  "
            f"needles {n.get('accuracy', float('nan')):.1f} of {n.get('accuracy_exact', float('nan')):.1f} % ({n['cells']} cells, log loss {n.get('log_loss', float('nan')):+.4f})")  # fmt: skip


def is_control(result):
    return result["codec"] == "null" or result["codec"].startswith("noise/")


def is_variant(result):
    return not is_control(result) and "@" in result["codec"]


def is_preset(result):
    return not is_control(result) and not is_variant(result)


def significant(x, digits=2):
    """A figure with as many digits as it deserves."""
    if x == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(x))))
    return f"{x:.{places}f}"


def interval(value, ends):
    return f"{value:+.2f} ({ends[0]:+.2f} … {ends[1]:+.2f})"


def front(points):
    """Names of the points that no other beats in both coordinates."""
    return {n for n, (x, y) in points.items() if not any(a <= x and b <= y and (a, b) != (x, y) for a, b in points.values())}


def points_of(results, what):
    return {r["codec"]: (r["bits_per_element"], what(r)) for r in results.values() if is_preset(r) and what(r) > 0}


ATTENTION = ("attention error, median head", lambda r: r["attention"]["median"])
DIVERGENCE = ("KL divergence of predictions, nats", lambda r: r["predictions"]["kld"])


def table(results, points):
    on_front = front(points)
    rows = ["| codec | bits/element | bytes/token | attention error: median head, 95th percentile, worst | ΔPPL % (95 %) | KLD, 99.9th percentile | first choice | needles |",
            "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in results.values():
        p, a, n = r["predictions"], r["attention"], r["needles"]
        errors = ", ".join(significant(a[x]) for x in ("median", "p95", "worst"))
        needle = f"{n['accuracy']:.1f} % (−{n['log_loss']:.3f})".replace("(−-", "(+") if "accuracy" in n else "–"
        name = f"**`{r['codec']}`**" if r["codec"] in on_front else f"`{r['codec']}`"
        rows.append(f"| {name} | {r['bits_per_element']:.2f} | {r['bytes_per_token']:.0f} | {errors} | {interval(p['dppl'], p['dppl_95'])} | "
                    f"{significant(p['kld'])}, {significant(p['kld_p999'])} | {p['top1']:.1f} % | {needle} |")  # fmt: skip
    return rows


def scale_section(scale, figures, plotted):
    """Everything that was measured at one scale; what is not plotted has no front."""
    s = figures["settings"]
    lines = [f"Scale `{scale}`: {s['documents']} documents of {s['tokens']} tokens (prose and code by turns), tokens with at least {s['context']} before them; "
             f"needles in {s['needle_documents']} documents each of {', '.join(map(str, s['needle_lengths']))} tokens."
             + ("" if plotted else " Rows that were measured at this scale alone, with others beside them; figures of different scales are not to be compared."), ""]  # fmt: skip
    for model, results in figures["models"].items():
        any_result = next(iter(results.values()))
        p, n = any_result["predictions"], any_result["needles"]
        lines += [f"**{model}**: perplexity of the exact cache {p['ppl_exact']:.2f} over {p['tokens']} tokens; {n['cells']} needle cells (length × depth) in which the "
                  f"exact cache finds at least 90 %, {n.get('accuracy_exact', 0):.1f} % in all.{' Bold: on the front of size and attention error.' if plotted else ''}", ""]  # fmt: skip
        for title, belongs in (("", is_preset), ("Options:", is_variant), ("Controls:", is_control)):
            rows = {k: v for k, v in results.items() if belongs(v)}
            lines += ([title, ""] if title else []) + table(rows, points_of(results, ATTENTION[1]) if plotted else {}) + [""] if rows else []
    return lines


def section(figures):
    lines = [BEGIN, ""] + scale_section(figures["scale"], figures, True) + [f"![Error against size]({PLOT})", ""]
    for scale, others in figures.get("others", {}).items():
        lines += scale_section(scale, others, False)
    return "\n".join(lines + [END])


class Panel:
    """A log-log plot of one model and one error."""

    def __init__(self, title, axis, points):
        self.title, self.axis, self.points = title, axis, points
        xs, ys = ([p[i] for p in points.values()] for i in (0, 1))
        self.x = (math.log2(min(xs)) - 0.15, math.log2(max(xs)) + 0.55)
        self.y = (math.floor(math.log10(min(ys)) * 2) / 2, math.ceil(math.log10(max(ys)) * 2) / 2)

    def at(self, x, y):
        left = MARGIN + (math.log2(x) - self.x[0]) / (self.x[1] - self.x[0]) * (WIDTH - MARGIN - 10)
        return left, HEIGHT - MARGIN - (math.log10(y) - self.y[0]) / (self.y[1] - self.y[0]) * (HEIGHT - MARGIN - 30)

    def svg(self, dx, dy):
        out = [f'<g transform="translate({dx},{dy})">', f'<text x="{MARGIN}" y="18" class="title">{html.escape(self.title)}: {self.axis}</text>']
        out += self._grid() + self._front()
        for name, (x, y, anchor) in self._labels().items():
            kind = "front" if name in front(self.points) else "off"
            cx, cy = self.at(*self.points[name])
            out.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3.5" class="{kind}"/>')
            out.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{html.escape(name)}</text>')
        return out + ["</g>"]

    def _labels(self):
        """Where names go: beside their points, up or down as far as it takes not to cover another name or point."""
        points = {n: self.at(*p) for n, p in self.points.items()}
        boxes = [(x - 3, x + 3, y) for x, y in points.values()]
        out = {}
        for name, (x, y) in sorted(points.items(), key=lambda p: p[1][1]):
            width = LETTER * len(name)
            places = [(side, dy) for dy in sorted(range(-40, 44, 4), key=abs) for side in (1, -1)]
            for side, dy in places:
                left = x + 7 if side > 0 else x - 7 - width
                if not any(left < b and a < left + width and abs(y + dy - at) < 10 for a, b, at in boxes if (a, at) != (x - 3, y)):
                    break
            boxes.append((left, left + width, y + dy))
            out[name] = (x + 7 * side, y + dy + 4, "start" if side > 0 else "end")
        return out

    def _grid(self):
        out = []
        for bits in (2, 2.5, 3, 3.5, 4, 5, 6, 8, 12, 16):
            if self.x[0] <= math.log2(bits) <= self.x[1]:
                x, _ = self.at(bits, 10 ** self.y[0])
                out.append(f'<line x1="{x:.1f}" y1="30" x2="{x:.1f}" y2="{HEIGHT - MARGIN}"/><text x="{x:.1f}" y="{HEIGHT - MARGIN + 14}" class="tick">{bits:g}</text>')
        decades = range(math.floor(self.y[0]), math.ceil(self.y[1]) + 1)
        for value in (factor * 10.0**decade for decade in decades for factor in (1, 3)):
            if not 10 ** self.y[0] * 0.99 <= value <= 10 ** self.y[1] * 1.01:
                continue
            _, y = self.at(2 ** self.x[0], value)
            out.append(f'<line x1="{MARGIN}" y1="{y:.1f}" x2="{WIDTH - 10}" y2="{y:.1f}"/><text x="{MARGIN - 5}" y="{y + 4:.1f}" class="tick left">{value:g}</text>')
        return out + [f'<text x="{(WIDTH + MARGIN) / 2}" y="{HEIGHT - MARGIN + 30}" class="tick">bits per element, all metadata included</text>']

    def _front(self):
        steps = sorted(self.points[n] for n in front(self.points))
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (self.at(*p) for p in steps))
        return [f'<polyline points="{path}"/>']


STYLE = """<style>
text { font: 11px 'DejaVu Sans', sans-serif; fill: #333 } .title { font-weight: bold } .tick { text-anchor: middle; fill: #777 } .left { text-anchor: end }
line { stroke: #e4e4e4 } polyline { fill: none; stroke: #1f6feb; stroke-width: 1.5 } circle.front { fill: #1f6feb } circle.off { fill: #999 } text.off { fill: #888 }
</style>"""


def plot(figures):
    panels = [Panel(model, axis, points_of(results, what)) for model, results in figures["models"].items() for axis, what in (ATTENTION, DIVERGENCE)]
    rows = -(-len(panels) // 2)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {rows * HEIGHT}">', STYLE, '<rect width="100%" height="100%" fill="#fff"/>']
    for i, panel in enumerate(panels):
        out += panel.svg(i % 2 * WIDTH, i // 2 * HEIGHT)
    return "\n".join(out + ["</svg>"]) + "\n"


def write(folder, figures):
    """Replace the section between the marks of README.md in `folder`, and the plot beside it."""
    readme = folder / "README.md"
    text = readme.read_text()
    if BEGIN not in text or END not in text:
        raise SystemExit(f"{readme} lacks the lines {BEGIN} and {END}")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    readme.write_text(before + section(figures) + after)
    (folder / PLOT).write_text(plot(figures))


def keep(figures):
    """Put the figures where the next report finds them, a result a line."""

    def text(part):
        models = {m: ",\n".join(json.dumps(r) for r in results.values()) for m, results in part["models"].items()}
        body = ",\n".join(f"{json.dumps(m)}: [\n{rows}\n]" for m, rows in models.items())
        return f'"settings": {json.dumps(part["settings"])}, "models": {{\n{body}\n}}'

    others = ",\n".join(f"{json.dumps(scale)}: {{{text(part)}}}" for scale, part in figures.get("others", {}).items())
    KEPT.write_text(f'{{"scale": {json.dumps(figures["scale"])}, {text(figures)}, "others": {{{others}}}}}\n')


def merged(figures):
    """The kept figures with these in them: of the kept scale beside the others of it, of another scale apart."""
    if not KEPT.exists():
        return figures
    old = kept()
    if old["scale"] == figures["scale"]:
        return old | {"settings": figures["settings"], "models": together(old["models"], figures["models"])}
    apart = old["others"].get(figures["scale"], {"models": {}})
    part = {"settings": figures["settings"], "models": together(apart["models"], figures["models"])}
    return old | {"others": old["others"] | {figures["scale"]: part}}


def together(old, new):
    """By model, with the old results of models and codecs that were not measured this time."""
    return {m: old.get(m, {}) | new.get(m, {}) for m in [*old, *(m for m in new if m not in old)]}


def kept():
    figures = {"others": {}} | json.loads(KEPT.read_text())
    for part in (figures, *figures["others"].values()):
        part["models"] = {m: {r["codec"]: r for r in results} for m, results in part["models"].items()}
    return figures


if __name__ == "__main__":
    write(pathlib.Path(__file__).parents[2] / "kernels", kept())
