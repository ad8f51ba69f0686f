#!/usr/bin/env python3
"""Writes keys.json: fingerprints and block keys computed from proto/WIRE.md with hashlib alone.

The C++ implementation is tested against the committed file; run this again only when the derivation itself changes.
"""

import hashlib
import json
import pathlib
import struct


def u8(value):
    return struct.pack("<B", value)


def u32(value):
    return struct.pack("<I", value)


def string(text):
    raw = text.encode()
    return u32(len(raw)) + raw


def fingerprint(spec):
    out = b"tokura-namespace-v1"
    for field in ("tenant", "model", "model_revision", "lora_digest", "salt"):
        out += string(spec[field])
    out += u8(spec["dtype"]) + u8(spec["rope"]) + u32(spec["head_shards"]) + u32(spec["block_tokens"])
    out += u32(len(spec["groups"]))
    for group in spec["groups"]:
        out += u8(group["kind"]) + u32(group["window"]) + u32(group["kv_heads"])
        out += u32(group["k_head_dim"]) + u32(group["v_head_dim"]) + u32(len(group["layers"]))
        out += b"".join(u32(layer) for layer in group["layers"])
    return hashlib.sha256(out).digest()


def block_key(space, parent, tokens, extras):
    out = b"tokura-block-v1" + space + parent + u32(len(tokens)) + b"".join(u32(t) for t in tokens)
    out += u32(len(extras))
    for kind, offset, raw in extras:
        body = u32(offset) + raw
        out += u8(kind) + u32(len(body)) + body
    return hashlib.sha256(out).digest()[:16]


def chain(space, block_tokens, appends):
    tokens, extras = [], []
    for append in appends:
        for extra in append["extras"]:
            extras.append((len(tokens), extra["kind"], bytes.fromhex(extra["hash"])))
        tokens += append["tokens"]
    keys, parent = [], bytes(16)
    for first in range(0, len(tokens) - block_tokens + 1, block_tokens):
        inside = [(k, at - first, raw) for at, k, raw in extras if first <= at < first + block_tokens]
        parent = block_key(space, parent, tokens[first : first + block_tokens], inside)
        keys.append(parent)
    return keys


def group(kind, window, layers, kv_heads, k_head_dim, v_head_dim):
    return dict(kind=kind, window=window, layers=layers, kv_heads=kv_heads, k_head_dim=k_head_dim, v_head_dim=v_head_dim)


def main():
    plain = dict(tenant="default", model="HuggingFaceTB/SmolLM2-135M", model_revision="main", lora_digest="", salt="",
                 dtype=2, rope=0, head_shards=1, block_tokens=16, groups=[group(0, 0, list(range(30)), 3, 64, 64)])
    specs = [
        plain,
        dict(plain, tenant="ab", model="c", model_revision="", block_tokens=4),
        dict(plain, tenant="a", model="bc", model_revision="", block_tokens=4),
        dict(plain, lora_digest="x", block_tokens=4),
        dict(plain, salt="x", block_tokens=4),
        dict(plain, tenant="größe", dtype=3, rope=1, head_shards=4, block_tokens=64,
             groups=[group(0, 0, [5, 11], 4, 256, 256), group(1, 1024, [0, 1, 2, 3, 4, 6, 7, 8, 9, 10], 8, 128, 64)]),
        dict(plain, model="mla", dtype=3, rope=2, block_tokens=1024, groups=[group(2, 0, [0, 1, 2], 1, 576, 0)]),
    ]
    text = [dict(tokens=list(range(1, 43)), extras=[])]
    image = "00" * 31 + "ff"
    items = [
        dict(tokens=[1, 2, 3], extras=[]),
        dict(tokens=[9, 9, 9, 9, 9, 9], extras=[dict(kind=1, hash=image)]),
        dict(tokens=[4294967295], extras=[]),
        dict(tokens=[], extras=[dict(kind=2, hash="")]),
        dict(tokens=[9, 9, 7, 7, 7, 7, 7], extras=[dict(kind=128, hash="0102"), dict(kind=1, hash=image)]),
    ]
    namespaces = [dict(spec=spec, fingerprint=fingerprint(spec).hex()) for spec in specs]
    chains = []
    for index, appends in [(0, text), (1, text), (1, items), (2, items), (6, [dict(tokens=list(range(2048)), extras=[])])]:
        space = fingerprint(specs[index])
        keys = chain(space, specs[index]["block_tokens"], appends)
        chains.append(dict(namespace=index, appends=appends, keys=[key.hex() for key in keys]))
    engine = []
    for index, raw in [(0, b""), (0, b"\x00" * 8), (1, bytes(range(32)))]:
        key = hashlib.sha256(b"engine-key" + fingerprint(specs[index]) + raw).digest()[:16]
        engine.append(dict(namespace=index, hash=raw.hex(), key=key.hex()))
    out = dict(namespaces=namespaces, chains=chains, engine_keys=engine)
    path = pathlib.Path(__file__).with_name("keys.json")
    path.write_text(json.dumps(out, ensure_ascii=False, separators=(",", ":")).replace('{"spec"', '\n{"spec"')
                    .replace('{"namespace"', '\n{"namespace"') + "\n")


if __name__ == "__main__":
    main()
