"""What a codec does to a model: teacher forcing over the coded cache, attention error per head, needles.

Exact keys, values, queries and hidden states are computed once per model (Reference) and compared with for every codec.
"""

import dataclasses
import hashlib
import json

import numpy as np
import torch

from model import Cache
from needles import DEPTHS, Haystack, Tree
from texts import HAYSTACK

REVISION = 1  # of what is measured and how; raised when kept results must not be used any more
CHUNK = 64  # tokens that are computed together before they are coded and only their coded form is seen
ROWS = 256  # of logits at once
SPAN = 512  # tokens of a document that the bootstrap draws together
DRAWS = 2000


@dataclasses.dataclass(frozen=True)
class Scale:
    """How much is measured."""

    documents: int
    tokens: int
    context: int  # tokens with fewer before them are not scored
    attention_documents: int
    needle_documents: int
    needle_lengths: tuple


SCALES = {
    "quick": Scale(2, 512, 256, 1, 2, (512,)),
    "standard": Scale(8, 2048, 1024, 4, 8, (512, 1024, 2048)),
    "large": Scale(32, 4096, 1024, 8, 20, (512, 1024, 2048, 4096)),
}


def digest(model, texts, scale):
    """Of all that results depend on but for the codec."""
    texts.documents(model, scale.documents, 1)  # reads all that it needs
    for name in HAYSTACK[: scale.needle_documents]:
        texts.text("prose", name)
    parts = [REVISION, model.digest, texts.digest(), dataclasses.asdict(scale), CHUNK]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def teacher_forcing(model, ids, codec, first_kept):
    """Run documents [documents, tokens] chunk by chunk, each attending to the coded form of those before it.

    Returns the hidden states [documents, tokens - first_kept, hidden] on the CPU.
    """
    documents, tokens = ids.shape
    cache = Cache(model.config, documents, tokens, model.device)
    kept = []
    for first in range(0, tokens, CHUNK):
        hidden = model.forward(ids[:, first : first + CHUNK], cache, first)
        if first >= first_kept:
            kept.append(hidden.cpu())
        if codec is not None:
            cache.write(first, *codec.round_trip(*cache.read(first, first + CHUNK), first))
    return torch.cat(kept, 1)


@torch.no_grad()
def compare_predictions(model, targets, exact, coded):
    """Per token: NLL exact and coded, KL divergence of the coded from the exact prediction, whether the first choice agrees.

    targets [rows]; exact [rows, hidden]; coded: list of [rows, hidden]. A list of float32 [rows, 4], one per entry of `coded`.
    """
    out = [[] for _ in coded]
    for a in range(0, len(targets), ROWS):
        to = torch.as_tensor(targets[a : a + ROWS], device=model.device)[:, None]
        p = model.log_probabilities(exact[a : a + ROWS].to(model.device))
        probability, choice, nll = p.exp(), p.argmax(-1), -p.gather(1, to)[:, 0]
        for rows, hidden in zip(out, coded):
            q = model.log_probabilities(hidden[a : a + ROWS].to(model.device))
            kld = (probability * (p - q)).sum(-1)
            rows.append(torch.stack([nll, -q.gather(1, to)[:, 0], kld, (q.argmax(-1) == choice).float()], 1).cpu())
    return [torch.cat(x).numpy() for x in out]


def bootstrap(values, statistic, rng):
    """95 % interval of a function of the mean of [documents, tokens, n] values, drawing spans of SPAN tokens."""
    spans = [x for document in values for x in np.array_split(document, max(1, round(len(document) / SPAN)))]
    sums, sizes = np.array([x.sum(0) for x in spans]), np.array([len(x) for x in spans])
    drawn = rng.integers(0, len(spans), (DRAWS, len(spans)))
    means = sums[drawn].sum(1) / sizes[drawn].sum(1)[:, None]
    return [float(x) for x in np.percentile([statistic(x) for x in means], [2.5, 97.5])]


def summarize_predictions(tokens, context):
    """tokens: [documents, scored, 4] of compare_predictions; the figures of the tables."""
    tokens = tokens.astype(np.float64)
    tokens[..., 1] -= tokens[..., 0]
    flat = tokens.reshape(-1, 4)
    change = lambda mean: 100 * float(np.expm1(mean[1]))
    out = {
        "tokens": len(flat), "ppl_exact": float(np.exp(flat[:, 0].mean())), "dppl": change(flat.mean(0)), "kld": float(flat[:, 2].mean()),
        "dppl_95": bootstrap(tokens, change, np.random.default_rng(1)),
        "kld_95": bootstrap(tokens, lambda mean: mean[2], np.random.default_rng(1)),
        "kld_p999": float(np.percentile(flat[:, 2], 99.9)), "top1": 100 * float(flat[:, 3].mean()),
        "by_kind": {}, "by_position": {},
    }  # fmt: skip
    for n, kind in enumerate(("prose", "code")):
        if len(tokens) > n:
            out["by_kind"][kind] = change(tokens[n::2].reshape(-1, 4).mean(0))
    for begin in (256, 512, 1024, 2048, 4096):
        part = tokens[:, max(0, begin - context) : max(0, 2 * begin - context)].reshape(-1, 4)
        if len(part):
            out["by_position"][f"{begin}-{2 * begin}"] = change(part.mean(0))
    return out


@dataclasses.dataclass
class Queries:
    first: int  # position of the chunk's first token
    by_layer: dict  # [documents, q_heads, CHUNK, head_dim]


class Layers:
    """Something that attend() can read: coded tokens in front of a chunk's exact ones."""

    def __init__(self, layer, coded, exact, first):
        join = lambda a, b: {layer: torch.cat([a[:, :, :first], b[:, :, first : first + CHUNK]], 2)}
        self.k, self.v = join(coded.k[layer], exact.k[layer]), join(coded.v[layer], exact.v[layer])


class Reference:
    """A model's documents with what an exact cache gives for them. Computed where it is missing in `folder`."""

    def __init__(self, model, texts, scale, folder):
        self.model, self.scale, self.folder = model, scale, folder
        self.ids = texts.documents(model, scale.documents, scale.tokens)
        self.haystacks = {}
        rng = np.random.default_rng(7)
        for length in scale.needle_lengths:
            names = [HAYSTACK[i % len(HAYSTACK)] for i in range(scale.needle_documents)]
            bases = [texts.tokens(model, "prose", name, length) for name in names]
            self.haystacks[length] = [Haystack(model, base, length, rng) for base in bases]
        self.trees = {length: Tree(h, length) for length, h in self.haystacks.items()}
        folder.mkdir(parents=True, exist_ok=True)
        self.hidden = self.kept("hidden", lambda: (teacher_forcing(model, self.ids, None, scale.context).numpy(),))[0]
        self.k, self.v, self.queries = self._attention_documents()

    def kept(self, name, compute):
        """Arrays that are on disk already, or computed and put there."""
        paths = [self.folder / f"{name}.{i}.npy" for i in range(8)]
        if not paths[0].exists():
            for i, array in reversed(list(enumerate(compute()))):
                np.save(paths[i], array)
        return [np.load(p, mmap_mode="c") for p in paths if p.exists()]

    def _prefill(self, ids, queries_from=None):
        model = self.model
        ids = np.asarray(ids)
        cache, queries = Cache(model.config, *ids.shape, model.device), []
        for first in range(0, ids.shape[1], CHUNK):
            keep = queries_from is not None and first >= queries_from and (first // CHUNK) % 4 == 3
            model.queries = {} if keep else None
            model.forward(ids[:, first : first + CHUNK], cache, first)
            if keep:
                queries.append(torch.stack([model.queries[i] for i in range(model.config.layers)]).cpu().numpy())
        model.queries = None
        return (*cache.read(0, ids.shape[1]), *([np.stack(queries)] if queries else []))

    def _attention_documents(self):
        context = self.scale.context // 2
        ids = self.ids[: self.scale.attention_documents]
        k, v, q = self.kept("attention", lambda: self._prefill(ids, context))
        firsts = [x for x in range(0, ids.shape[1], CHUNK) if x >= context and (x // CHUNK) % 4 == 3]
        return k, v, [Queries(first, {i: torch.from_numpy(x[i]) for i in range(len(x))}) for first, x in zip(firsts, q)]

    def cache(self, k, v, room=0):
        cache = Cache(self.model.config, k.shape[1], k.shape[3] + room, self.model.device)
        cache.write(0, k, v)
        return cache

    def predictions(self, codecs):
        """compare_predictions for several codecs at once: a list of [documents, scored, 4]."""
        coded = [teacher_forcing(self.model, self.ids, c, self.scale.context)[:, :-1] for c in codecs]
        exact = torch.from_numpy(np.ascontiguousarray(self.hidden[:, :-1]))
        shape = exact.shape[:2]
        flat = lambda x: x.reshape(-1, x.shape[-1])
        targets = self.ids[:, self.scale.context + 1 :].reshape(-1)
        rows = compare_predictions(self.model, targets, flat(exact), [flat(x) for x in coded])
        drift = [float((x - exact).norm() / exact.norm()) for x in coded]
        return [x.reshape(*shape, 4) for x in rows], drift

    @torch.no_grad()
    def attention_error(self, codec):
        """Relative error of the attention output per [layers, q_heads], with the model's own later queries."""
        model = self.model
        exact, coded = self.cache(self.k, self.v), self.cache(*codec.round_trip(self.k, self.v, 0))
        heads = (model.config.q_heads, model.config.head_dim)
        error, size = (np.zeros((model.config.layers, heads[0])) for _ in range(2))
        mask = torch.ones(CHUNK, CHUNK, dtype=torch.bool).tril().to(model.device)
        for queries in self.queries:
            positions = torch.arange(queries.first, queries.first + CHUNK)
            for layer, q in queries.by_layer.items():
                attend = lambda c: model.attend(layer, q.to(model.device), c, queries.first, mask, positions)
                o = attend(Layers(layer, exact, exact, queries.first))
                difference = attend(Layers(layer, coded, exact, queries.first)) - o
                for sums, x in ((error, difference), (size, o)):
                    sums[layer] += x.double().square().view(*x.shape[:2], *heads).sum((0, 1, 3)).cpu().numpy()
        return np.sqrt(error / size)

    @torch.no_grad()
    def needles(self, codec):
        """By length: [haystacks, depths, candidates] log-probabilities over the coded cache. `codec` None: over the exact one."""
        out = {}
        for length, haystacks in self.haystacks.items():
            k, v = self.kept(f"needles-{length}", lambda: self._prefill([h.ids for h in haystacks]))
            if codec is not None:
                k, v = codec.round_trip(np.ascontiguousarray(k), np.ascontiguousarray(v), 0)
            tree = self.trees[length]
            out[length] = tree.score(self.model, self.cache(k, v, len(tree.positions)), length)
        return out


def summarize_needles(exact, coded):
    """Accuracy and log-probability of the truth among the candidates, over cells where the exact cache gives at least 90 %."""
    out = {"grid_exact": {}, "grid": {}, "cells": 0}
    truth = lambda x: x[..., 0] - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1)) - x.max(-1)
    valid_exact, valid_coded, loss = [], [], []
    for length in exact:
        hits = [(x[length].argmax(-1) == 0) for x in (exact, coded)]
        grids = [100 * x.mean(0) for x in hits]
        out["grid_exact"][str(length)], out["grid"][str(length)] = ([float(y) for y in x] for x in grids)
        good = grids[0] >= 90
        out["cells"] += int(good.sum())
        valid_exact.append(hits[0][:, good].reshape(-1))
        valid_coded.append(hits[1][:, good].reshape(-1))
        loss.append((truth(exact[length]) - truth(coded[length]))[:, good].reshape(-1))
    valid_exact, valid_coded, loss = (np.concatenate(x) for x in (valid_exact, valid_coded, loss))
    if len(loss):
        out |= {"needles": len(loss), "accuracy_exact": 100 * float(valid_exact.mean()), "accuracy": 100 * float(valid_coded.mean()), "log_loss": float(loss.mean())}
    return out | {"depths": DEPTHS}


def summarize_attention(error):
    heads = error.reshape(-1)
    return {"median": float(np.median(heads)), "p95": float(np.percentile(heads, 95)), "worst": float(heads.max()),
            "worst_head": [int(x) for x in np.unravel_index(error.argmax(), error.shape)], "mean_of_layers": float(np.sqrt((error**2).mean(1)).mean())}  # fmt: skip


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")
