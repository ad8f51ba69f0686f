"""Namespaces, chains and matches: no servers."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import numpy as np
import pytest
import tokura
import tokura._core
from conftest import BLOCK_TOKENS, spec


def test_fingerprints_differ_in_every_field() -> None:
    base = tokura.Namespace(spec())
    group = tokura.LayerGroup(layers=range(3), kv_heads=2, k_head_dim=32)
    changes: list[dict[str, object]] = [
        {"model": "other"},
        {"model_revision": "r2"},
        {"tenant": "t"},
        {"lora_digest": "l"},
        {"salt": "s"},
        {"dtype": "float16"},
        {"groups": [group]},
        {"head_shards": 2},
        {"block_tokens": 32},
        {"rope": "pre"},
    ]
    prints = {tokura.Namespace(spec(**change)).fingerprint for change in changes}
    assert len(prints) == len(changes)
    assert base.fingerprint not in prints
    assert len(base.fingerprint) == 32
    assert base.block_bytes == 3 * 2 * 2 * 64 * 4 * BLOCK_TOKENS


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": ""}, "model"),
        ({"dtype": "float64"}, "dtype"),
        ({"rope": "maybe"}, "rope"),
        ({"groups": []}, "group"),
        ({"block_tokens": 0}, "block_tokens"),
        ({"block_tokens": -1}, "integers"),
        ({"head_shards": 3}, "head_shards"),
        ({"salt": "a\0b"}, "NUL"),
    ],
)
def test_bad_specs_name_the_field(change: dict[str, object], named: str) -> None:
    with pytest.raises(tokura.InvalidArgument, match=named) as caught:
        tokura.Namespace(spec(**change))
    assert caught.value.code is tokura.StatusCode.INVALID_ARGUMENT
    assert isinstance(caught.value, ValueError)
    assert str(caught.value).startswith("INVALID_ARGUMENT: ")


def test_latent_group_has_no_v_by_default() -> None:
    group = tokura.LayerGroup(kind="latent", layers=[0], kv_heads=1, k_head_dim=576)
    latent = tokura.Namespace(spec(groups=[group], dtype="bfloat16"))
    assert latent.block_bytes == 576 * 2 * BLOCK_TOKENS


def test_cutting_the_text_changes_no_key(namespace: tokura.Namespace) -> None:
    tokens = np.arange(100, dtype=np.uint32)
    whole = tokura.TokenChain(namespace, tokens)
    pieces = tokura.TokenChain(namespace)
    for start in range(0, 100, 7):
        pieces.append(tokens[start : start + 7].tolist())
    assert pieces.keys == whole.keys
    assert (len(whole), whole.blocks, whole.tokens) == (6, 6, 100)


@pytest.mark.parametrize("dtype", ["uint32", "int32", "int64", "uint64"])
def test_tokens_of_every_integer_type(namespace: tokura.Namespace, dtype: str) -> None:
    expected = tokura.TokenChain(namespace, list(range(32))).keys
    strided = np.arange(64, dtype=dtype)[::2] // 2
    assert tokura.TokenChain(namespace, strided).keys == expected


@pytest.mark.parametrize(
    "tokens", [[-1], [2**32], ["a"], np.array([-1]), np.array([1.0]), np.zeros((2, 2), int), "abc", b"abc"]
)
def test_what_is_no_token_is_refused(namespace: tokura.Namespace, tokens: object) -> None:
    with pytest.raises(tokura.InvalidArgument, match="tokens"):
        tokura.TokenChain(namespace, tokens)  # type: ignore[arg-type]


def test_extras_change_the_key_from_their_block_on(namespace: tokura.Namespace) -> None:
    plain = tokura.TokenChain(namespace, range(64))
    image = tokura.KeyExtra(tokura.EXTRA_MULTIMODAL_HASH, b"hash of an image")
    marked = tokura.TokenChain(namespace, range(20))
    marked.append(range(20, 64), extras=[image])
    assert marked.keys[0] == plain.keys[0]
    assert all(a != b for a, b in zip(marked.keys[1:], plain.keys[1:], strict=True))
    with pytest.raises(tokura.InvalidArgument, match="kind"):
        marked.append([1], extras=[tokura.KeyExtra(256, b"x")])


def test_chains_of_hashes_and_keys(namespace: tokura.Namespace) -> None:
    hashes = [bytes([i]) * 32 for i in range(5)]
    chain = tokura.TokenChain.from_engine_hashes(namespace, hashes[:3])
    chain.append_engine_hashes(hashes[3:])
    assert len(chain) == 5
    assert chain.tokens == 5 * BLOCK_TOKENS
    again = tokura.TokenChain.from_keys(namespace, chain.keys)
    assert again.keys == chain.keys
    assert chain.prefix(2).keys == chain.keys[:2]
    with pytest.raises(tokura.FailedPrecondition, match="made of engine hashes"):
        chain.append([1, 2, 3])
    with pytest.raises(tokura.InvalidArgument, match="16 bytes"):
        tokura.TokenChain.from_keys(namespace, [b"short"])


def test_copies_grow_apart(namespace: tokura.Namespace) -> None:
    chain = tokura.TokenChain(namespace, range(20))
    fork = chain.copy()
    fork.append(range(20, 64))
    assert (len(chain), len(fork)) == (1, 4)
    assert fork.keys[0] == chain.keys[0]


def test_a_match_of_garbage_is_refused() -> None:
    for garbage in (b"", b"x", os.urandom(200)):
        with pytest.raises(tokura.InvalidArgument):
            tokura.Match.from_bytes(garbage)


def test_what_cannot_be_made_says_so() -> None:
    with pytest.raises(TypeError, match="lookup"):
        tokura.Match()
    with pytest.raises(TypeError, match="contiguous"):
        tokura.KvView()


def test_the_stub_of_the_extension_is_true() -> None:
    stub = ast.parse(Path(tokura._core.__file__).with_name("_core.pyi").read_text())

    def public(names: object) -> set[str]:
        return {name for name in names if not name.startswith("_")}  # type: ignore[attr-defined]

    declared = {
        node.name: public(f.name for f in getattr(node, "body", []) if hasattr(f, "name"))
        for node in stub.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
    }
    assert set(declared) == public(dir(tokura._core))
    for name, members in declared.items():
        found = getattr(tokura._core, name)
        if isinstance(found, type):
            assert public(dir(found)) == members, name


def test_everything_that_is_offered_is_there() -> None:
    for name in tokura.__all__:
        assert hasattr(tokura, name), name
