"""What may happen to a block of a KV cache: the real encoder and decoder (libtokura_quality), or a control.

A codec's specification is what the tables print:
    NAME[@block=N][@sinks=N][@edges=N][@profile=NAME]
        a preset or "K+V" of the library; defaults: blocks of 64 tokens, 4 sinks, the profile made for the model.
        edges: that many first and last layers of the model as int8 instead
    null                                      nothing at all: every difference has to be exactly 0
    noise/SPEC[/SEED]                         Gaussian noise of the same RMS error as SPEC, per block, head and side
"""

import ctypes
import hashlib

import numpy as np
import torch

BLOCK, SINKS, EDGE_CODEC = 64, 4, b"int8"
POSITION_BITS = 20  # of a seed for noise, of which a generator on the CPU takes 32 bits


class Options(ctypes.Structure):
    _fields_ = [(x, ctypes.c_char_p) for x in ("codec", "profile_path", "edge_codec")]
    _fields_ += [("layers", ctypes.POINTER(ctypes.c_uint32)), ("edge", ctypes.c_char_p)] + [
        (x, ctypes.c_uint32)
        for x in ("group_layers", "group", "sequences", "heads", "tokens", "head_dim", "block_tokens", "sink_tokens", "first_block", "threads")
    ]  # fmt: skip


class Result(ctypes.Structure):
    _fields_ = [(x, ctypes.c_uint64) for x in ("part_bytes", "layer_bytes", "layers_raw", "layers_hash")] + [("message", ctypes.c_char * 256)]


class Library:
    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path))
        self.functions.tokura_quality_presets.restype = ctypes.c_char_p

    def presets(self):
        return self.functions.tokura_quality_presets().decode().split()

    def round_trip(self, options, arrays):
        result = Result()
        pointers = [x.ctypes.data_as(ctypes.c_void_p) for x in arrays]
        if self.functions.tokura_quality_round_trip(ctypes.byref(options), *pointers, ctypes.byref(result)) != 0:
            raise RuntimeError(f"{options.codec.decode()}: {result.message.decode()}")
        return result


class Codec:
    """Encodes and decodes; counts what it stored since the last reset()."""

    def __init__(self, spec, library, config, profiles, threads=1):
        self.spec, self.library, self.config, self.threads = spec, library, config, threads
        self.name, *options = spec.split("@")
        options = dict(x.split("=") for x in options)
        self.block, self.sinks = int(options.pop("block", BLOCK)), int(options.pop("sinks", SINKS))
        self.edges = int(options.pop("edges", 0))
        self.profile = str(profiles.get(options.pop("profile", ""), ""))
        if options:
            raise SystemExit(f"{spec}: unknown option {next(iter(options))}")
        self.reset()

    def reset(self):
        self.part_bytes = self.layer_bytes = self.layers_raw = self.tokens = 0
        self.hash = hashlib.sha256()

    def round_trip(self, k, v, first):
        """k, v: float16 [layers, sequences, heads, tokens, head_dim] of the positions from `first` on; decoded copies."""
        out = np.empty_like(k), np.empty_like(v)
        layers, sequences, heads, tokens, head_dim = k.shape
        for group, members in enumerate(self.config.groups):
            indices = (ctypes.c_uint32 * len(members))(*members)
            edge = bytes(int(min(x, layers - 1 - x) < self.edges) for x in members)
            options = Options(self.name.encode(), self.profile.encode(), EDGE_CODEC, indices, edge, len(members), group, sequences, heads, tokens, head_dim,
                              self.block, self.sinks, first // self.block, self.threads)  # fmt: skip
            result = self.library.round_trip(options, (k, v, *out))
            self.part_bytes += result.part_bytes
            self.layer_bytes += result.layer_bytes
            self.layers_raw += result.layers_raw
            self.hash.update(result.layers_hash.to_bytes(8, "little"))
        self.tokens += sequences * tokens
        return out

    def bytes_per_token(self):
        return self.part_bytes / self.tokens

    def bits_per_element(self):
        c = self.config
        return 8 * self.bytes_per_token() / (2 * c.layers * c.kv_heads * c.head_dim)


class Null:
    spec = "null"

    def __init__(self, config):
        self.config = config

    def reset(self):
        pass

    def round_trip(self, k, v, first):
        return k, v

    def bytes_per_token(self):
        c = self.config
        return 4.0 * c.layers * c.kv_heads * c.head_dim

    def bits_per_element(self):
        return 16.0


class Noise:
    """The codec's error with its structure destroyed: Gaussian, of the same RMS per block, head and side; exact tokens stay exact."""

    def __init__(self, codec, seed, device):
        self.codec, self.seed, self.device, self.spec = codec, seed, device, f"noise/{codec.spec}" + (f"/{seed}" if seed else "")

    def reset(self):
        self.codec.reset()

    def bytes_per_token(self):
        return self.codec.bytes_per_token()

    def bits_per_element(self):
        return self.codec.bits_per_element()

    def round_trip(self, k, v, first):
        decoded = self.codec.round_trip(k, v, first)
        return tuple(self._noisy(x, y, (self.seed * 2 + side) << POSITION_BITS | first) for side, (x, y) in enumerate(zip((k, v), decoded)))

    def _noisy(self, exact, decoded, seed):
        blocks = (*exact.shape[1:3], exact.shape[3] // self.codec.block, self.codec.block, exact.shape[4])
        generator = torch.Generator(self.device).manual_seed(seed)
        out = np.empty_like(exact)
        for layer in range(len(exact)):
            x, y = (torch.from_numpy(z[layer]).to(self.device).float().view(blocks) for z in (exact, decoded))
            error = y - x
            touched = (error != 0).any(4, keepdim=True)
            scale = (error.square().mean((3, 4), keepdim=True) / touched.float().mean(3, keepdim=True).clamp(min=1e-9)).sqrt()
            noise = torch.randn(blocks, generator=generator, device=self.device)
            out[layer] = (x + touched * scale * noise).half().cpu().numpy().reshape(exact.shape[1:])
        return out


def make(spec, library, config, profiles, threads=1, device="cpu"):
    if spec == "null":
        return Null(config)
    if spec.startswith("noise/"):
        _, inner, *seed = spec.split("/")
        return Noise(make(inner, library, config, profiles, threads), int(seed[0]) if seed else 0, device)
    return Codec(spec, library, config, profiles, threads)


def behaviour(codec, k, v):
    """A digest of what the codec makes of these values: results stay good for as long as it does not change."""
    codec.reset()
    out = codec.round_trip(k, v, 0)
    digest = hashlib.sha256(out[0].tobytes() + out[1].tobytes() + str(codec.bytes_per_token()).encode())
    codec.reset()
    return digest.hexdigest()[:16]
