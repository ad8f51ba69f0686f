"""Captures of calibration texts as .kvcap files (tests/data/kv/README.md has the layout), and the profile made of them."""

import dataclasses
import struct
import subprocess
import zlib

import numpy as np

from model import Cache

CONTEXT, QUERIES = 512, 64
HEADER = struct.Struct("<8s13If2I32s6Q2I")
ALIGNMENT = 64


@dataclasses.dataclass
class Capture:
    ids: np.ndarray  # [tokens]
    k: np.ndarray  # float16 [layers, kv_heads, tokens, head_dim]
    v: np.ndarray
    q: np.ndarray  # float16 [layers, q_heads, QUERIES, head_dim]


def capture(model, ids):
    """Keys and values of CONTEXT + QUERIES tokens and the queries of the last QUERIES of them."""
    cache = Cache(model.config, 1, len(ids), model.device)
    model.queries = {}
    model.forward(np.asarray(ids)[None], cache, 0)
    q = np.stack([model.queries[i][0, :, CONTEXT:].half().cpu().numpy() for i in range(model.config.layers)])
    model.queries = None
    k, v = (x[:, 0] for x in cache.read(0, len(ids)))
    return Capture(np.asarray(ids, np.int32), k, v, q)


def write(path, model, data):
    c = model.config
    table = b"".join(struct.pack("<3If", i, int(c.window[i] > 0), c.window[i], c.theta[i]) for i in range(c.layers))
    arrays = [table, data.ids.tobytes(), data.k.tobytes(), data.v.tobytes(), data.q.tobytes()]
    body, offsets = bytearray(), []
    for array in arrays:
        body += bytes(-(HEADER.size + len(body)) % ALIGNMENT)
        offsets.append(HEADER.size + len(body))
        body += array
    header = HEADER.pack(b"KVCAPT01", 1, HEADER.size, c.layers, c.kv_heads, c.q_heads, c.head_dim, len(data.ids), 0, QUERIES, CONTEXT,
                         CONTEXT, 1, 1, model.scale, c.layers, int(model.gemma), c.name.encode(), *offsets, HEADER.size + len(body),
                         zlib.crc32(body), 0)  # fmt: skip
    path.write_bytes(header + body)


def make_profile(model, texts, tokura, folder, count):
    """Captures of the first `count` calibration texts, and a profile of them that is not older than the program; its path."""
    path = folder / f"{count}.profile"
    if path.exists() and path.stat().st_mtime > tokura.stat().st_mtime:
        return path
    folder.mkdir(parents=True, exist_ok=True)
    captures = []
    for name, ids in texts.calibration(model, count, CONTEXT + QUERIES).items():
        captures += ["--kv", folder / f"{name.replace(':', '-')}.kvcap"]
        if not captures[-1].exists():
            write(captures[-1], model, capture(model, ids))
    subprocess.run([tokura, "profile", *captures, "--out", path], check=True)
    return path
