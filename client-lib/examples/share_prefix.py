"""Two clients share the KV of one prompt through a cache node:

    share_prefix.py 127.0.0.1:4321

The first stores the KV of its prompt; the second, which knows only the tokens, finds the longest
prefix of its own prompt at the node and reads it into its own memory. In production the two are
workers on different machines, and the arrays are the engine's pages (tokura.KvPages).
"""

import sys

import numpy as np
import tokura

LAYERS, HEADS, HEAD_DIM, TOKENS = 4, 2, 64, 256


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: share_prefix.py HOST:PORT (of a node)", file=sys.stderr)
        return 2
    group = tokura.LayerGroup(layers=range(LAYERS), kv_heads=HEADS, k_head_dim=HEAD_DIM)
    spec = tokura.NamespaceSpec(model="example", dtype="float32", groups=[group])
    namespace = tokura.Namespace(spec)
    chain = tokura.TokenChain(namespace, range(1000, 1000 + TOKENS))

    # Per layer K and V as [heads, tokens, head_dim].
    source = np.random.default_rng().standard_normal((2, LAYERS, HEADS, TOKENS, HEAD_DIM), "float32")
    target = np.zeros_like(source)

    # raw is exact; the default, kivi4, takes a quarter of the bytes.
    with tokura.Client(nodes=[sys.argv[1]], name="prefill", ingest_codec="raw") as prefill:
        prefill.wait_ready()
        put = prefill.put(namespace, chain, tokura.KvView.contiguous(*source))
    with tokura.Client(nodes=[sys.argv[1]], name="decode") as decode:
        decode.wait_ready()
        match = decode.lookup(namespace, chain)
        got = decode.get(namespace, match, tokura.KvView.contiguous(*target))
    same = got.prefix_ok == len(chain) and np.array_equal(source, target)
    print(f"stored {put.stored} of {len(chain)} blocks, found {len(match)}, read {got.prefix_ok}:"
          f" {'same values' if same else 'NOT the same'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
