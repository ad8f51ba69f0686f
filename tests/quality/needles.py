"""Needles: five secret numbers in a document; is the true one the likeliest of ten candidates once the cache was coded?

Likelihood scoring asks no more of a small model than it can do: nothing is generated. The five questions and their
candidates run side by side over one cache as a tree of continuations. The cache is coded before any question is known.
Wrong candidates are the document's four other numbers and five random ones, so that mixing up keys shows.
"""

import numpy as np
import torch

CITIES = ["Lisbon", "Oslo", "Vienna", "Cairo", "Lima", "Dublin", "Prague", "Madrid", "Athens", "Tokyo", "Berlin", "Rome", "Paris", "Warsaw", "Boston", "Delhi", "Sydney", "Moscow", "London", "Chicago"]  # fmt: skip
DEPTHS = [0.05, 0.25, 0.5, 0.75, 0.95]
CANDIDATES, DIGITS = 10, 5
SPREAD = 60  # tokens within which a needle waits for the end of a sentence


def number(rng):
    return "".join(str(x) for x in rng.integers(0, 10, DIGITS))


class Haystack:
    """One document of `length` tokens with its needles, and the questions' tokens."""

    def __init__(self, model, base, length, rng):
        cities = [x for x in CITIES if len(model.encode(" " + x)) == 1]  # so that all documents' questions have one shape
        cities = list(rng.permutation(cities)[: len(DEPTHS)])
        truths = [number(rng) for _ in DEPTHS]
        needles = [model.encode(f"\nThe secret number of {c} is {n}.\n") for c, n in zip(cities, truths)]
        rest = length - sum(map(len, needles))
        self.ids, at = [], 0
        for depth, needle in zip(DEPTHS, needles):
            cut = min(self._sentence_end(model, base, int(depth * rest)), rest)
            self.ids += list(base[at:cut]) + needle
            at = cut
        self.ids += list(base[at:rest])
        self.questions = [model.encode(f"\n\nThe secret number of {c} is ") for c in cities]
        self.candidates = []
        for truth in truths:
            names = [truth] + [x for x in truths if x != truth]
            while len(names) < CANDIDATES:
                names.append(number(rng))
            self.candidates.append([model.encode(x) for x in names])

    @staticmethod
    def _sentence_end(model, base, cut):
        for j in range(cut, min(cut + SPREAD, len(base))):
            if model.tokenizer.decode([int(base[j])]).endswith((".", "\n")):
                return j + 1
        return cut


class Tree:
    """All questions of a batch of haystacks as one run: token ids per haystack; positions, mask and reads in common."""

    def __init__(self, haystacks, start):
        shapes = {tuple(map(len, h.questions)) for h in haystacks} | {tuple(len(c) for q in h.candidates for c in q) for h in haystacks}
        assert len(shapes) == 2, f"questions or numbers of different token counts: {shapes}"
        self.ids, self.positions, parents, self.reads = [[] for _ in haystacks], [], [], []
        for n, question in enumerate(haystacks[0].questions):
            last = self._chain(parents, [h.questions[n] for h in haystacks], start, -1)
            for c in range(CANDIDATES):
                tokens = [h.candidates[n][c] for h in haystacks]
                first = len(parents)
                self._chain(parents, [x[:-1] for x in tokens], start + len(question), last)
                self.reads += [((last if j == 0 else first + j - 1), [x[j] for x in tokens]) for j in range(DIGITS)]
        self.mask = np.zeros((len(parents), len(parents)), bool)
        for row, parent in enumerate(parents):
            if parent >= 0:
                self.mask[row] = self.mask[parent]
            self.mask[row, row] = True

    def _chain(self, parents, tokens, position, parent):
        for j in range(len(tokens[0])):
            for ids, x in zip(self.ids, tokens):
                ids.append(x[j])
            self.positions.append(position + j)
            parents.append(parent)
            parent = len(parents) - 1
        return parent

    def score(self, model, cache, start):
        """[haystacks, questions, candidates]: log-probability of the candidate's digits. The cache has room behind `start`."""
        hidden = model.forward(self.ids, cache, start, self.positions, self.mask)
        rows = np.array([r for r, _ in self.reads])
        used, at = np.unique(rows, return_inverse=True)
        out = []
        for h in range(len(self.ids)):
            logp = model.log_probabilities(hidden[h, torch.from_numpy(used).to(hidden.device)]).cpu().numpy()
            out.append(logp[at, [t[h] for _, t in self.reads]])
        return np.array(out).reshape(len(self.ids), len(DEPTHS), CANDIDATES, DIGITS).sum(-1)
