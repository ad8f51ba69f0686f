#!/usr/bin/env python3
"""Writes the golden parts from kernels/FORMAT.md alone and compares them with the files.

A second implementation, slow and plain, that shares no code with kernels/: what both agree on is
what the page says. Exit status 0: every file in tests/golden/kernels has exactly these bytes.
"""

import math
import pathlib
import struct
import sys

FLOAT32, FLOAT16, BFLOAT16, FLOAT8 = 1, 2, 3, 4


class Shape:
    def __init__(self, layers, heads, tokens, k_dim, v_dim):
        self.layers, self.heads, self.tokens, self.k_dim, self.v_dim = layers, heads, tokens, k_dim, v_dim


SMALL, LARGE, LATENT = Shape(2, 2, 8, 16, 12), Shape(1, 1, 70, 80, 136), Shape(1, 1, 6, 208, 0)
SINKS, SHARD, PROFILE_ID, QUERIES = 3, 2, 0x1122334455667788, 5

# (file, codec, dtype, block position, shape); unit_kernels' golden_test.cc has the same list.
EXAMPLES = [
    ("raw_float16", "raw", FLOAT16, 0, SMALL),
    ("raw_float32", "raw", FLOAT32, 0, SMALL),
    ("raw_bfloat16", "raw", BFLOAT16, 0, SMALL),
    ("int8_float16", "int8", FLOAT16, 0, SMALL),
    ("int8_bfloat16", "int8", BFLOAT16, 1, SMALL),
    ("int8_float32", "int8", FLOAT32, 1, SMALL),
    ("kivi4_float16", "kivi4", FLOAT16, 0, SMALL),
    ("kivi4_bfloat16", "kivi4", BFLOAT16, 1, SMALL),
    ("kivi4_float32", "kivi4", FLOAT32, 1, SMALL),
    ("k8v4_float16", "k8v4", FLOAT16, 0, SMALL),
    ("raw_float8", "raw", FLOAT8, 0, SMALL),
    ("fp8_float8", "fp8", FLOAT8, 0, SMALL),
    ("fp8_float16", "fp8", FLOAT16, 1, SMALL),
    ("fp8_float32", "fp8", FLOAT32, 0, LARGE),
    ("int4_float16", "int4", FLOAT16, 0, LARGE),
    ("kivi4_large_bfloat16", "kivi4", BFLOAT16, 0, LARGE),
    ("kivi2_float16", "kivi2", FLOAT16, 0, LARGE),
    ("kivi_k2v4_bfloat16", "kivi_k2v4", BFLOAT16, 0, SMALL),
    ("kivi_k4v2_float32", "kivi_k4v2", FLOAT32, 0, SMALL),
    ("atom4_bfloat16", "atom4", BFLOAT16, 0, LARGE),
    ("atom4_float16", "atom4", FLOAT16, 1, SMALL),
    ("qserve4_float16", "qserve4", FLOAT16, 0, LARGE),
    ("qserve4_float32", "qserve4", FLOAT32, 1, SMALL),
    ("turbo4_float16", "turbo4", FLOAT16, 0, LARGE),
    ("turbo3_bfloat16", "turbo3", BFLOAT16, 1, SMALL),
    ("kivi4r_float16", "kivi4r", FLOAT16, 0, LARGE),
    ("kivi3r_bfloat16", "kivi3r", BFLOAT16, 0, SMALL),
    ("kivi4rv_float16", "kivi4rv", FLOAT16, 0, LARGE),
    ("kivi3rv_float32", "kivi3rv", FLOAT32, 1, SMALL),
    ("mla_fp8_bfloat16", "mla_fp8", BFLOAT16, 0, LATENT),
    ("kivi4_int8_float16", "kivi4,int8", FLOAT16, 0, SMALL),
    ("kivi3_bfloat16", "kivi3", BFLOAT16, 0, LARGE),
]


class NotRepresentable(Exception):
    """The layer is stored raw."""


def align(x, n):
    return (x + n - 1) // n * n


def pad(data, n):
    return data + bytes(align(len(data), n) - len(data))


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def f32(x):
    """x rounded to float32; one double operation followed by this is the float32 operation."""
    try:
        return struct.unpack("<f", struct.pack("<f", x))[0]
    except OverflowError:
        return math.copysign(math.inf, x)


def float8_value(code):
    exponent, mantissa = code >> 3 & 15, code & 7
    magnitude = mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10)
    return -magnitude if code & 0x80 else magnitude


FLOAT8_VALUES = [float8_value(code) for code in range(0x7F)]


def float8(x):
    """The nearest of the 127 values, the even one of two, with the sign of x."""
    sign = 0x80 if math.copysign(1, x) < 0 else 0
    best = min(range(0x7F), key=lambda code: (abs(FLOAT8_VALUES[code] - abs(x)), code % 2))
    return best | sign


def store(dtype, x):
    if dtype == FLOAT32:
        return struct.pack("<f", x)
    if dtype == FLOAT8:
        return bytes([float8(x)])
    if dtype == FLOAT16:
        try:
            return struct.pack("<e", x)
        except OverflowError:
            return struct.pack("<H", 0xFC00 if x < 0 else 0x7C00)
    bits = struct.unpack("<I", struct.pack("<f", x))[0]
    if math.isfinite(x):
        bits += 0x7FFF + (bits >> 16 & 1)
    return struct.pack("<H", bits >> 16)


def round_to(dtype, x):
    data = store(dtype, x)
    if dtype == FLOAT32:
        return struct.unpack("<f", data)[0]
    if dtype == FLOAT16:
        return struct.unpack("<e", data)[0]
    if dtype == FLOAT8:
        return float8_value(data[0])
    return struct.unpack("<f", b"\0\0" + data)[0]


def stored_scale(dtype, value_range, largest_code):
    if value_range == 0:
        return 1.0
    scale = f32(value_range / largest_code)
    if dtype == FLOAT16 and scale < 2.0**-14:
        return math.ceil(scale * 2.0**24) * 2.0**-24
    if dtype != FLOAT16 and scale < 2.0**-126:
        return 2.0**-126
    return round_to(dtype, scale)


def check_finite(values):
    if not all(math.isfinite(v) for v in values):
        raise NotRepresentable


def raw(dtype, rows):
    return pad(b"".join(store(dtype, v) for row in rows for v in row), 16)


def plane(bits, codes):
    per_word = 32 // bits
    codes = codes + [0] * (align(len(codes), per_word) - len(codes))
    out = b""
    for first in range(0, len(codes), per_word):
        word = 0
        for c in range(per_word):
            word |= (codes[first + c] & (1 << bits) - 1) << (c % 2 * 16 + c // 2 * bits)
        out += struct.pack("<I", word)
    return out


def packed(bits, codes):
    if bits == 8:
        return bytes(code & 255 for code in codes)
    if bits == 3:
        return plane(2, codes) + plane(1, [code >> 2 for code in codes])
    return plane(bits, codes)


class Side:
    """The fields of a side, and how its rows become bytes."""

    def __init__(self, number=0, bits=0, grouping=0, zero=0, transform=0, rounding=0, outliers=0,
                 tail=0, group_max=0, group_split=0):
        self.fields = (number, bits, grouping, zero, transform, rounding, outliers, tail, group_max,
                       group_split)
        self.number, self.bits, self.grouping, self.zero = number, bits, grouping, zero
        self.transform, self.rounding, self.outliers, self.tail = transform, rounding, outliers, tail
        self.group_max, self.group_split = group_max, group_split

    def pack(self):
        return struct.pack("<8BHHI", *self.fields, 0)

    def groups(self, extent):
        size = extent if self.group_max == 0 or extent <= self.group_max else self.group_split
        return [(i, min(i + size, extent)) for i in range(0, extent, size)] if extent else []

    def exact(self, dtype):
        return self.number == 0 or (self.number == 2 and dtype == FLOAT8)

    def code(self, dtype, rows, profile):
        """The three arrays; `profile` has what this side takes from a profile."""
        if self.number == 0:
            return raw(dtype, rows)
        dim = len(rows[0]) if rows else 0
        tail = min(self.tail, dim)
        count = min(self.outliers * ((dim - tail + 127) // 128), dim - tail) // 2 * 2
        kept = profile["outliers"][:count] + list(range(dim - tail, dim))
        exact = [[row[c] for c in kept] for row in rows]
        coded = [[v for c, v in enumerate(row) if c not in kept] for row in rows]
        gain = 1.0
        if self.transform == 1:
            coded = [[f32(v / s) for v, s in zip(row, profile["smooth"])] for row in coded]
            gain = max(profile["smooth"])
        elif self.transform == 2:
            gain, coded = hadamard(coded, profile["seed"])
        coder = {1: self.integers, 2: self.float8s, 3: self.codebook}[self.number]
        codes, parameters = coder(dtype, coded, gain, profile) if coded and coded[0] else (b"", b"")
        return pad(codes, 16) + pad(parameters, 16) + raw(dtype, exact)

    def range(self):
        """Lowest code, highest code, and what is added to a code that is stored."""
        if self.zero:
            return 0, 2**self.bits - 1, 0
        top = 2 ** (self.bits - 1) - 1
        return -top, top, 0 if self.bits == 8 else 2 ** (self.bits - 1)

    def scale_and_minimum(self, dtype, values, gain):
        check_finite(values)
        top = self.range()[1]
        if self.zero:
            minimum = round_to(dtype, min(values)) + 0.0
            scale = stored_scale(dtype, f32(max(values) - min(values)), top)
        else:
            minimum, scale = 0.0, stored_scale(dtype, max(abs(v) for v in values), top)
        constant = max(values) == min(values) if self.zero else not any(values)
        largest = max(abs(f32(f32(top * scale) + minimum)), abs(minimum))
        check_finite([round_to(dtype, f32(largest * gain))])
        return scale, minimum, constant

    def quantize(self, x, scale, minimum, constant):
        low, high, bias = self.range()
        code = 0 if constant else round(max(low, min(high, f32(f32(x - minimum) / scale))))
        return code + bias, f32(f32(code * scale) + minimum)

    def integers(self, dtype, rows, gain, profile):
        dim, parameters = len(rows[0]), b""
        pairs = []  # of each token and channel
        kept = 2 if self.zero else 1
        if self.grouping == 1:
            for row in rows:
                pairs.append([])
                for begin, end in self.groups(dim):
                    pair = self.scale_and_minimum(dtype, row[begin:end], gain)
                    parameters += b"".join(store(dtype, p) for p in pair[:kept])
                    pairs[-1] += [pair] * (end - begin)
        else:
            for begin, end in self.groups(len(rows)):
                columns = [[row[c] for row in rows[begin:end]] for c in range(dim)]
                line = [self.scale_and_minimum(dtype, column, gain) for column in columns]
                for which in range(kept):
                    parameters += b"".join(store(dtype, pair[which]) for pair in line)
                pairs += [line] * (end - begin)
        if self.rounding == 0:
            codes = [[self.quantize(v, *pair)[0] for v, pair in zip(row, line)]
                     for row, line in zip(rows, pairs)]
        elif self.rounding == 1:
            codes = [self.guided(row, line, profile["guide"]) for row, line in zip(rows, pairs)]
        else:
            codes = self.guided_by_token(rows, pairs, profile["queries"], profile["keys"])
        return b"".join(packed(self.bits, line) for line in codes), parameters

    def guided(self, row, pairs, guide):
        order, factor = guide
        row, codes = list(row), [0] * len(row)
        for i, c in enumerate(order):
            codes[c], value = self.quantize(row[c], *pairs[c])
            error = f32(row[c] - value)
            for j in range(i + 1, len(order)):
                row[order[j]] = f32(row[order[j]] - f32(error * factor(i, j)))
        return codes

    def guided_by_token(self, rows, pairs, queries, keys):
        codes = [None] * len(rows)
        attention = [softmax(query, keys) for query in queries]
        for first in range(0, len(rows), 64):
            count = min(64, len(rows) - first)
            guide = token_guide([p[first:first + count] for p in attention], count)
            # Channels do not meet: each is a row of tokens.
            for c in range(len(rows[0])):
                column = self.guided([rows[first + t][c] for t in range(count)],
                                     [pairs[first + t][c] for t in range(count)], guide)
                for t in range(count):
                    codes[first + t] = (codes[first + t] or []) + [column[t]]
        return codes

    def float8s(self, dtype, rows, gain, profile):
        dim, codes, parameters = len(rows[0]), [[0] * len(row) for row in rows], b""
        tokens = [(0, len(rows))] if self.grouping == 0 else [(t, t + 1) for t in range(len(rows))]
        for first, last in tokens:
            for begin, end in [(0, dim)] if self.grouping == 0 else self.groups(dim):
                values = [v for row in rows[first:last] for v in row[begin:end]]
                check_finite(values)
                largest, scale = max(abs(v) for v in values), 1.0
                if dtype != FLOAT8 and largest > 0:
                    scale = 2.0**-126
                    while f32(largest / 448) > scale:
                        scale *= 2
                check_finite([round_to(dtype, f32(float8_value(float8(largest / scale)) * scale))])
                parameters += struct.pack("<f", scale)
                for t in range(first, last):
                    codes[t][begin:end] = [float8(f32(v / scale)) for v in rows[t][begin:end]]
        return b"".join(bytes(line) for line in codes), parameters

    def codebook(self, dtype, rows, gain, profile):
        upper = [f32(v) for v in CODEBOOKS[self.bits]]
        values = [-v for v in reversed(upper)] + upper
        thresholds = [f32(f32(a + b) * 0.5) for a, b in zip(values, values[1:])]
        codes, parameters = b"", b""
        for row in rows:
            line = []
            for begin, end in self.groups(len(row)):
                group = row[begin:end]
                squares = sum_of_squares(group)
                check_finite([squares])
                length, zero = f32(math.sqrt(squares)), squares < 2.0**-100
                factor = 0.0 if zero else f32(f32(math.sqrt(len(group))) / length)
                chosen = [sum(f32(v * factor) >= t for t in thresholds) for v in group]
                norm = f32(math.sqrt(sum_of_squares([values[code] for code in chosen])))
                scale = 0.0 if zero else round_to(dtype, f32(length / norm))
                check_finite([round_to(dtype, f32(f32(scale * values[-1]) * gain))])
                parameters += store(dtype, scale)
                line += chosen
            codes += packed(self.bits, line)
        return codes, parameters


CODEBOOKS = {
    2: (0.45278004, 1.5104176),
    3: (0.24509418, 0.75600528, 1.3439093, 2.1519457),
    4: (0.12839503, 0.38804830, 0.65675912, 0.94234046, 1.2562312, 1.6180464, 2.0690170, 2.7325896),
}


def sum_of_squares(values):
    sums = [0.0] * 16
    for i, v in enumerate(values):
        sums[i % 16] = f32(sums[i % 16] + f32(v * v))
    for half in (8, 4, 2, 1):
        sums = [f32(a + b) for a, b in zip(sums[:half], sums[half:])]
    return sums[0]


def hadamard(rows, seed):
    dim = len(rows[0])
    block = dim & -dim
    k = block.bit_length() - 1
    mask = 2**64 - 1

    def word(i):
        z = seed + (i + 1) * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        return z ^ z >> 31

    out = []
    for row in rows:
        row = [-v if word(c // 64) >> c % 64 & 1 else v for c, v in enumerate(row)]
        half = 1
        while half < block:
            for i in range(dim):
                if i // half % 2 == 0:
                    a, b = row[i], row[i + half]
                    row[i], row[i + half] = f32(a + b), f32(a - b)
            half *= 2
        out.append([f32(v * 2.0 ** -(k // 2)) for v in row])
    return block * 2.0 ** -((k + 1) // 2), out


def exp_of_negative(x):
    x = max(x, -87.0)
    n = round(f32(x * f32(1.44269504)))
    r = f32(f32(x - f32(n * f32(0.693359375))) + f32(n * f32(2.12194440e-4)))
    series = f32(1 / 720)
    for divisor in (120, 24, 6, 2, 1):
        series = f32(f32(1 / divisor) + f32(r * series))
    return f32(f32(1 + f32(r * series)) * 2.0**n)


def softmax(query, keys):
    logits = []
    for key in keys:
        total = 0.0
        for q, k in zip(query, key):
            total = f32(total + f32(q * k))
        logits.append(total)
    largest = max(logits)
    p, total = [exp_of_negative(f32(v - largest)) for v in logits], 0.0
    for v in p:
        total = f32(total + v)
    return [f32(v / total) for v in p]


def token_guide(attention, n):
    h = [[0.0] * n for _ in range(n)]
    for p in attention:
        for i in range(n):
            for j in range(n):
                h[i][j] += p[i] * p[j]
    trace = 0.0
    for i in range(n):
        trace += h[i][i]
    order = sorted(range(n), key=lambda i: -h[i][i])
    w = [[h[a][b] for b in order] for a in order]
    for i in range(n):
        w[i][i] += 0.2 * trace / n
    for j in reversed(range(n)):
        for i in [j] + list(range(j)):
            total = w[i][j]
            for k in range(j + 1, n):
                total -= w[i][k] * w[j][k]
            w[i][j] = math.sqrt(total) if i == j else total / w[j][j]
    u = [[0.0] * n for _ in range(n)]
    for j in range(n):
        u[j][j] = 1 / w[j][j]
        for i in reversed(range(j)):
            total = 0.0
            for k in range(i + 1, j + 1):
                total += w[i][k] * u[k][j]
            u[i][j] = -total / w[i][i]
    return order, lambda i, j: f32(u[i][j] * w[i][i])


def stored_profile(layer, head, k_dim, v_dim):
    """What the profile has for one head; test_profile.cc has the same formulas."""
    mix, half, step = layer * 7 + head * 3, max(k_dim // 2, 1), 7
    while math.gcd(step, k_dim) != 1:
        step += 2
    pairs = 2 * ((k_dim + 127) // 128) // 2
    return {
        "smooth": [1 + (mix + c % half) % 5 / 2 for c in range(k_dim)],
        "k_outliers": sorted((mix + i) % half + side * half for i in range(pairs) for side in (0, 1)),
        "v_outliers": sorted((mix + 2 + i) % v_dim for i in range(2 * ((v_dim + 127) // 128))),
        "guide": ([(step * i + 3) % k_dim for i in range(k_dim)],
                  lambda i, j: ((i * 31 + j * 17) % 9 - 4) / 16),
        "seed": 0x0123456789ABCDEF + layer * 16 + head,
        "queries": [[((m * 13 + c * 7 + mix) % 11 - 5) / 32 for c in range(k_dim)]
                    for m in range(QUERIES)],
    }


RAW = Side()
INT8, INT4 = Side(1, 8, 1), Side(1, 4, 1)
CHANNEL4 = Side(1, 4, 2, 1, group_max=64, group_split=64)
CHANNEL2 = Side(1, 2, 2, 1, group_max=32, group_split=32)
TOKEN4, TOKEN3, TOKEN2 = (Side(1, bits, 1, 1, group_max=most, group_split=split)
                          for bits, most, split in ((4, 128, 64), (3, 128, 64), (2, 32, 32)))
FP8 = Side(2, 8)
ATOM4 = Side(1, 4, 1, 1, outliers=2, group_max=128, group_split=64)
GUIDED4, GUIDED3 = (Side(1, bits, 2, 1, rounding=1, group_max=64, group_split=64) for bits in (4, 3))
GUIDED_V4, GUIDED_V3 = (Side(1, bits, 1, 1, rounding=2, group_max=128, group_split=64)
                        for bits in (4, 3))
CODECS = {
    "raw": (RAW, RAW),
    "fp8": (FP8, FP8),
    "int8": (INT8, INT8),
    "int4": (INT4, INT4),
    "kivi4": (CHANNEL4, TOKEN4),
    "kivi2": (CHANNEL2, TOKEN2),
    "kivi_k2v4": (CHANNEL2, TOKEN4),
    "kivi_k4v2": (CHANNEL4, TOKEN2),
    "k8v4": (INT8, TOKEN4),
    "atom4": (ATOM4, ATOM4),
    "qserve4": (Side(1, 4, 1, 1, transform=1, group_max=128, group_split=64), TOKEN4),
    "turbo4": (Side(3, 4, 1, transform=2), TOKEN4),
    "turbo3": (Side(3, 3, 1, transform=2), TOKEN3),
    "kivi4r": (GUIDED4, TOKEN4),
    "kivi3r": (GUIDED3, TOKEN3),
    "kivi4rv": (GUIDED4, GUIDED_V4),
    "kivi3rv": (GUIDED3, GUIDED_V3),
    "mla_fp8": (Side(2, 8, 1, tail=64, group_max=128, group_split=128), RAW),
    "kivi3": (Side(1, 3, 2, 1, group_max=64, group_split=64), TOKEN3),
}


def uses_profile(codec):
    return any(side.transform or side.rounding or side.outliers for side in codec)


def example_values(position, shape):
    """rows[layer, head, side][token][channel]; golden_test.cc describes the values."""
    rows, i = {}, 0
    for layer in range(shape.layers):
        for head in range(shape.heads):
            for side, dim in enumerate((shape.k_dim, shape.v_dim)):
                rows[layer, head, side] = []
                for token in range(shape.tokens):
                    row = [(i + c) * 37 % 101 / 8 - 50 / 8 for c in range(dim)]
                    i += dim
                    if side == 0:
                        row[3] = 1.5
                    elif token == 5:
                        row = [0.0] * dim
                    rows[layer, head, side].append(row)
    if position == 1:
        rows[0, 0, 1][6][1] = math.inf
    return rows


def slab(dtype, sides, k, v, exact, profile):
    k_profile = {**profile, "outliers": profile.get("k_outliers", [])}
    v_profile = {**profile, "outliers": profile.get("v_outliers", []), "keys": k[exact:]}
    coded_k = sides[0].code(dtype, k[exact:], k_profile)
    coded_v = sides[1].code(dtype, v[exact:], v_profile)
    indices = pad(struct.pack(f"<{exact}I", *range(exact)), 16)
    body = coded_k + coded_v + indices + raw(dtype, k[:exact]) + raw(dtype, v[:exact])
    v_offset = 32 + len(coded_k)
    return struct.pack("<IIIfIIII", 32 + len(body), len(k) - exact, exact, 0.0, 32, v_offset,
                       v_offset + len(coded_v), 0) + body


def layer(dtype, sides, rows, index, exact, shape):
    slabs = []
    for h in range(shape.heads):
        profile = {}
        if uses_profile(sides):
            profile = stored_profile(index, SHARD * shape.heads + h, shape.k_dim, shape.v_dim)
        slabs.append(slab(dtype, sides, rows[index, h, 0], rows[index, h, 1], exact, profile))
    offsets, at = [], align(8 + 4 * shape.heads, 16)
    for data in slabs:
        offsets.append(at)
        at += len(data)
    header = struct.pack(f"<II{shape.heads}I", shape.heads, 0, *offsets)
    return pad(pad(header, 16) + b"".join(slabs), 64)


def section(data):
    data += bytes(align(len(data) + 4, 64) - 4 - len(data))
    return data + struct.pack("<I", crc32c(data))


def header(codecs, dtype, layer_codec, shape):
    exact = all(side.exact(dtype) for i in layer_codec for side in codecs[i])
    profile = PROFILE_ID if any(uses_profile(codec) for codec in codecs) else 0
    tail = b"".join(k.pack() + v.pack() for k, v in codecs) + pad(bytes(layer_codec), 8)
    size = align(136 + len(tail) + 4, 64)
    return section(
        b"TOKURAKV" + struct.pack("<HHI", 0, 3, size) + bytes(range(1, 33)) +
        bytes(range(0x40, 0x50)) + bytes(range(0x80, 0x90)) +
        bytes([1, SHARD, dtype, 1 if exact else 2]) +
        struct.pack("<9IQQ", shape.layers, shape.heads, shape.k_dim, shape.v_dim, shape.tokens,
                    len(codecs), 0, 0, 0, profile, 0) + tail)


def part(names, dtype, position, shape):
    """`names` is a codec, or one and then those of the layers from 1 on that have another."""
    codecs = [CODECS[name] for name in names.split(",")]
    wanted = [min(index, len(codecs) - 1) for index in range(shape.layers)]
    codecs += [] if codecs == [(RAW, RAW)] else [(RAW, RAW)]
    rows = example_values(position, shape)
    layers, layer_codec = [], []
    for index in range(shape.layers):
        codec = codecs[wanted[index]]
        exact = SINKS if position == 0 and codec != (RAW, RAW) else 0
        try:
            layers.append(layer(dtype, codec, rows, index, exact, shape))
            layer_codec.append(wanted[index])
        except NotRepresentable:
            layers.append(layer(dtype, (RAW, RAW), rows, index, 0, shape))
            layer_codec.append(len(codecs) - 1)
    record = struct.pack("<6IQ", 0x43455245, 64, 0, 0, 0, 0, 0)
    table = struct.pack("<4I", 0x4C424154, align(16 + 16 * shape.layers + 4, 64), shape.layers, 0)
    at = 0
    for data in layers:
        table += struct.pack("<QII", at, len(data), crc32c(data))
        at += len(data)
    return (header(codecs, dtype, layer_codec, shape) + section(record) + section(table) +
            b"".join(layers))


def main():
    folder = pathlib.Path(__file__).parent / "kernels"
    wrong = 0
    for name, codec, dtype, position, shape in EXAMPLES:
        expected = part(codec, dtype, position, shape)
        found = (folder / f"{name}.part").read_bytes()
        if found != expected:
            first = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), None)
            print(f"{name}: {len(found)} bytes, expected {len(expected)}, first difference {first}")
            wrong += 1
    print(f"{len(EXAMPLES) - wrong} of {len(EXAMPLES)} golden parts as FORMAT.md says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
