#!/usr/bin/env python3
"""Writes the golden parts from kernels/FORMAT.md alone and compares them with the files.

A second implementation, slow and plain, that shares no code with kernels/: what both agree on is
what the page says. Exit status 0: every file in tests/golden/kernels has exactly these bytes.
"""

import math
import pathlib
import struct
import sys

FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3
LAYERS, HEADS, TOKENS, K_DIM, V_DIM, SINKS = 2, 2, 8, 16, 12, 3

# (file, codec, dtype, block position); unit_kernels' golden_test.cc has the same list.
EXAMPLES = [
    ("raw_float16", "raw", FLOAT16, 0),
    ("raw_float32", "raw", FLOAT32, 0),
    ("raw_bfloat16", "raw", BFLOAT16, 0),
    ("int8_float16", "int8", FLOAT16, 0),
    ("int8_bfloat16", "int8", BFLOAT16, 1),
    ("int8_float32", "int8", FLOAT32, 1),
    ("kivi4_float16", "kivi4", FLOAT16, 0),
    ("kivi4_bfloat16", "kivi4", BFLOAT16, 1),
    ("kivi4_float32", "kivi4", FLOAT32, 1),
    ("k8v4_float16", "k8v4", FLOAT16, 0),
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


def store(dtype, x):
    if dtype == FLOAT32:
        return struct.pack("<f", x)
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


def groups(group_max, extent):
    size = extent if group_max == 0 or extent <= group_max else min(group_max, 64)
    return [(i, min(i + size, extent)) for i in range(0, extent, size)] if extent else []


def check_finite(values):
    if not all(math.isfinite(v) for v in values):
        raise NotRepresentable


def raw(dtype, rows):
    return pad(b"".join(store(dtype, v) for row in rows for v in row), 16)


def int8(dtype, rows):
    codes, parameters = b"", b""
    for row in rows:
        for begin, end in groups(0, len(row)):
            check_finite(row[begin:end])
            scale = stored_scale(dtype, max(abs(v) for v in row[begin:end]), 127)
            check_finite([round_to(dtype, f32(127 * scale))])
            parameters += store(dtype, scale)
            for v in row[begin:end]:
                codes += struct.pack("<b", max(-127, min(127, round(f32(v / scale)))))
    return pad(codes, 16) + pad(parameters, 16)


def scale_and_minimum(dtype, values):
    check_finite(values)
    minimum = min(values) + 0.0
    scale = stored_scale(dtype, f32(max(values) - minimum), 15)
    check_finite([round_to(dtype, f32(f32(15 * scale) + minimum))])
    return scale, minimum


def code4(x, scale, minimum):
    return min(15, round(f32(f32(x - minimum) / scale)))


def words(codes):
    codes = codes + [0] * (align(len(codes), 8) - len(codes))
    out = b""
    for first in range(0, len(codes), 8):
        word = 0
        for nibble, channel in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
            word |= codes[first + channel] << 4 * nibble
        out += struct.pack("<I", word)
    return out


def int4_per_channel(dtype, rows):
    codes, parameters = b"", b""
    for begin, end in groups(64, len(rows)):
        columns = [[row[c] for row in rows[begin:end]] for c in range(len(rows[0]))]
        pairs = [scale_and_minimum(dtype, column) for column in columns]
        parameters += b"".join(store(dtype, scale) for scale, _ in pairs)
        parameters += b"".join(store(dtype, minimum) for _, minimum in pairs)
        for row in rows[begin:end]:
            codes += words([code4(v, *pair) for v, pair in zip(row, pairs)])
    return pad(codes, 16) + pad(parameters, 16)


def int4_per_token(dtype, rows):
    codes, parameters = b"", b""
    for row in rows:
        row_codes = []
        for begin, end in groups(128, len(row)):
            scale, minimum = scale_and_minimum(dtype, row[begin:end])
            parameters += store(dtype, scale) + store(dtype, minimum)
            row_codes += [code4(v, scale, minimum) for v in row[begin:end]]
        codes += words(row_codes)
    return pad(codes, 16) + pad(parameters, 16)


def side(number, bits, grouping, zero=0, transform=0, rounding=0, outliers=0, tail=0, group_max=0,
         group_split=0):
    return struct.pack("<8BHHI", number, bits, grouping, zero, transform, rounding, outliers, tail,
                       group_max, group_split, 0)


RAW = (raw, bytes(16))
INT8 = (int8, side(1, 8, 1))
INT4_PER_CHANNEL = (int4_per_channel, side(1, 4, 2, 1, group_max=64, group_split=64))
INT4_PER_TOKEN = (int4_per_token, side(1, 4, 1, 1, group_max=128, group_split=64))
CODECS = {
    "raw": (RAW, RAW),
    "int8": (INT8, INT8),
    "kivi4": (INT4_PER_CHANNEL, INT4_PER_TOKEN),
    "k8v4": (INT8, INT4_PER_TOKEN),
}


def example_values(position):
    """rows[layer, head, side][token][channel]; golden_test.cc describes the values."""
    rows, i = {}, 0
    for layer in range(LAYERS):
        for head in range(HEADS):
            for side, dim in enumerate((K_DIM, V_DIM)):
                rows[layer, head, side] = []
                for token in range(TOKENS):
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


def slab(dtype, sides, k, v, exact):
    coded_k, coded_v = sides[0][0](dtype, k[exact:]), sides[1][0](dtype, v[exact:])
    indices = pad(struct.pack(f"<{exact}I", *range(exact)), 16)
    body = coded_k + coded_v + indices + raw(dtype, k[:exact]) + raw(dtype, v[:exact])
    v_offset = 32 + len(coded_k)
    return struct.pack("<IIIfIIII", 32 + len(body), len(k) - exact, exact, 0.0, 32, v_offset,
                       v_offset + len(coded_v), 0) + body


def layer(dtype, sides, rows, index, exact):
    slabs = [slab(dtype, sides, rows[index, h, 0], rows[index, h, 1], exact) for h in range(HEADS)]
    offsets, at = [], align(8 + 4 * HEADS, 16)
    for data in slabs:
        offsets.append(at)
        at += len(data)
    header = struct.pack(f"<II{HEADS}I", HEADS, 0, *offsets)
    return pad(pad(header, 16) + b"".join(slabs), 64)


def section(data):
    data += bytes(align(len(data) + 4, 64) - 4 - len(data))
    return data + struct.pack("<I", crc32c(data))


def header(codec, dtype, layer_codec):
    codecs = [CODECS[codec]] + ([] if codec == "raw" else [(RAW, RAW)])
    exact = all(codecs[i] == (RAW, RAW) for i in layer_codec)
    tail = b"".join(k[1] + v[1] for k, v in codecs) + pad(bytes(layer_codec), 8)
    size = align(136 + len(tail) + 4, 64)
    return section(
        b"TOKURAKV" + struct.pack("<HHI", 0, 2, size) + bytes(range(1, 33)) +
        bytes(range(0x40, 0x50)) + bytes(range(0x80, 0x90)) +
        bytes([1, 2, dtype, 1 if exact else 2]) +
        struct.pack("<9IQQ", LAYERS, HEADS, K_DIM, V_DIM, TOKENS, len(codecs), 0, 0, 0, 0, 0) +
        tail)


def part(codec, dtype, position):
    rows = example_values(position)
    exact = SINKS if position == 0 and codec != "raw" else 0
    layers, layer_codec = [], []
    for index in range(LAYERS):
        try:
            layers.append(layer(dtype, CODECS[codec], rows, index, exact))
            layer_codec.append(0)
        except NotRepresentable:
            layers.append(layer(dtype, (RAW, RAW), rows, index, 0))
            layer_codec.append(1)
    record = struct.pack("<6IQ", 0x43455245, 64, 0, 0, 0, 0, 0)
    table = struct.pack("<4I", 0x4C424154, align(16 + 16 * LAYERS + 4, 64), LAYERS, 0)
    at = 0
    for data in layers:
        table += struct.pack("<QII", at, len(data), crc32c(data))
        at += len(data)
    return header(codec, dtype, layer_codec) + section(record) + section(table) + b"".join(layers)


def main():
    folder = pathlib.Path(__file__).parent / "kernels"
    wrong = 0
    for name, codec, dtype, position in EXAMPLES:
        expected = part(codec, dtype, position)
        found = (folder / f"{name}.part").read_bytes()
        if found != expected:
            first = next((i for i, (a, b) in enumerate(zip(found, expected)) if a != b), None)
            print(f"{name}: {len(found)} bytes, expected {len(expected)}, first difference {first}")
            wrong += 1
    print(f"{len(EXAMPLES) - wrong} of {len(EXAMPLES)} golden parts as FORMAT.md says")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
