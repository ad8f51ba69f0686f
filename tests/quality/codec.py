"""What may happen to a block of a KV cache: the real encoder and decoder (libtokura_quality), or a control.

A codec's specification is what the tables print:
    NAME[@block=N][@sinks=N][@profile=NAME]   a preset or "K+V" of the library; defaults 64, 4, the profile made for the model
    null                                      nothing at all: every difference has to be exactly 0
    noise/SPEC[/SEED]                         Gaussian noise of the same RMS error as SPEC, per block, head and side
"""

import ctypes
import hashlib

import numpy as np

BLOCK, SINKS = 64, 4


class Options(ctypes.Structure):
    _fields_ = [("codec", ctypes.c_char_p), ("profile_path", ctypes.c_char_p), ("layers", ctypes.POINTER(ctypes.c_uint32))] + [
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
            options = Options(self.name.encode(), self.profile.encode(), indices, len(members), group, sequences, heads, tokens, head_dim,
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

    def __init__(self, codec, seed):
        self.codec, self.seed, self.spec = codec, seed, f"noise/{codec.spec}" + (f"/{seed}" if seed else "")

    def reset(self):
        self.codec.reset()

    def bytes_per_token(self):
        return self.codec.bytes_per_token()

    def bits_per_element(self):
        return self.codec.bits_per_element()

    def round_trip(self, k, v, first):
        decoded = self.codec.round_trip(k, v, first)
        return tuple(self._noisy(x, y, [self.seed, side, first]) for side, (x, y) in enumerate(zip((k, v), decoded)))

    def _noisy(self, exact, decoded, seed):
        blocks = exact.shape[:3] + (exact.shape[3] // self.codec.block, self.codec.block, exact.shape[4])
        x, error = (y.astype(np.float32).reshape(blocks) for y in (exact, decoded))
        error -= x
        rms = np.sqrt((error**2).mean((4, 5), keepdims=True))
        touched = (error != 0).any(5, keepdims=True)
        share = touched.mean(4, keepdims=True)
        scale = rms / np.sqrt(np.where(share > 0, share, 1))
        noise = np.random.default_rng(seed).standard_normal(blocks, np.float32)
        return (x + touched * scale * noise).astype(np.float16).reshape(exact.shape)


def make(spec, library, config, profiles, threads=1):
    if spec == "null":
        return Null(config)
    if spec.startswith("noise/"):
        _, inner, *seed = spec.split("/")
        return Noise(make(inner, library, config, profiles, threads), int(seed[0]) if seed else 0)
    return Codec(spec, library, config, profiles, threads)


def behaviour(codec, k, v):
    """A digest of what the codec makes of these values: results stay good for as long as it does not change."""
    codec.reset()
    out = codec.round_trip(k, v, 0)
    digest = hashlib.sha256(out[0].tobytes() + out[1].tobytes() + str(codec.bytes_per_token()).encode())
    codec.reset()
    return digest.hexdigest()[:16]
