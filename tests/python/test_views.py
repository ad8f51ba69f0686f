"""Views: layouts, strides and what is refused. What a put reads a get of another layout returns."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import tokura
from conftest import BLOCK_TOKENS, HEAD_DIM, HEADS, LAYERS, Memory, lookup, spec

PAGES = 7
PAGE_TOKENS = 32
TABLE = [5, 0, 3]  # three pages of 32 tokens: six blocks


def paged(order: str) -> tuple[list[np.ndarray], list[np.ndarray]]:
    axes = (PAGE_TOKENS, HEADS) if order == "NHD" else (HEADS, PAGE_TOKENS)
    # Halves of one tensor, as engines have them: strides are not those of a contiguous array.
    both = [np.zeros((PAGES, 2, *axes, HEAD_DIM), "float32") for _ in range(LAYERS)]
    return [kv[:, 0] for kv in both], [kv[:, 1] for kv in both]


def sequence(arrays: list[np.ndarray], order: str) -> np.ndarray:
    """[layers, heads, tokens, channels] of the sequence in TABLE."""
    picked = [array[TABLE] for array in arrays]
    if order == "NHD":
        picked = [array.transpose(0, 2, 1, 3) for array in picked]
    return np.stack([array.transpose(1, 0, 2, 3).reshape(HEADS, -1, HEAD_DIM) for array in picked])


def stored(
    client: tokura.Client, namespace: tokura.Namespace, base: int
) -> tuple[Memory, tokura.Match]:
    tokens = 3 * PAGE_TOKENS
    source = Memory(tokens, seed=base)
    chain = tokura.TokenChain(namespace, range(base, base + tokens))
    assert client.put(namespace, chain, source.view()).ok
    match = lookup(client, namespace, chain)
    assert len(match) == tokens // BLOCK_TOKENS
    return source, match


@pytest.mark.parametrize("order", ["NHD", "HND"])
def test_pages_of_an_engine(
    client: tokura.Client, namespace: tokura.Namespace, order: str
) -> None:
    source, match = stored(client, namespace, 50_000_000 + len(order) + (order == "NHD"))
    k, v = paged(order)
    pages = tokura.KvPages.from_arrays(k, v, order=order)  # type: ignore[arg-type]
    assert (pages.pages, pages.page_tokens, pages.heads) == (PAGES, PAGE_TOKENS, HEADS)
    assert client.get(namespace, match, pages.view(TABLE)).ok
    assert np.array_equal(sequence(k, order), np.stack(source.k))
    assert np.array_equal(sequence(v, order), np.stack(source.v))
    untouched = [page for page in range(PAGES) if page not in TABLE]
    assert not any(array[untouched].any() for array in [*k, *v])


def test_vllm_cpu_pages(client: tokura.Client, namespace: tokura.Namespace) -> None:
    source, match = stored(client, namespace, 51_000_000)
    layers = [
        np.zeros((PAGES, HEADS, PAGE_TOKENS, 2 * HEAD_DIM), "float32") for _ in range(LAYERS)
    ]
    pages = tokura.KvPages.vllm_cpu(layers, head_dim=HEAD_DIM)
    assert client.get(namespace, match, pages.view(np.array(TABLE))).ok
    for layer, array in enumerate(layers):
        flat = array.reshape(PAGES, HEADS, 2, PAGE_TOKENS * HEAD_DIM)
        k = flat[:, :, 0].reshape(PAGES, HEADS, HEAD_DIM, PAGE_TOKENS)[TABLE].transpose(1, 0, 3, 2)
        v = flat[:, :, 1].reshape(PAGES, HEADS, PAGE_TOKENS, HEAD_DIM)[TABLE].transpose(1, 0, 2, 3)
        assert np.array_equal(k.reshape(HEADS, -1, HEAD_DIM), source.k[layer])
        assert np.array_equal(v.reshape(HEADS, -1, HEAD_DIM), source.v[layer])


def test_a_view_that_begins_later(client: tokura.Client, namespace: tokura.Namespace) -> None:
    source, match = stored(client, namespace, 52_000_000)
    first = 2
    target = Memory(2 * BLOCK_TOKENS)
    view = tokura.SequenceView([target.view()], first_token=first * BLOCK_TOKENS)
    got = client.get(namespace, match, view, first_block=first, blocks=2)
    assert got.ok
    part = slice(first * BLOCK_TOKENS, (first + 2) * BLOCK_TOKENS)
    assert all(np.array_equal(a, b[:, part]) for a, b in zip(target.k, source.k, strict=True))


def test_bytes_under_another_name(client: tokura.Client) -> None:
    half = tokura.Namespace(spec(dtype="bfloat16"))
    tokens = 2 * BLOCK_TOKENS
    rng = np.random.default_rng(1)
    # bfloat16 has no numpy type: the bytes come as uint16. Values of ordinary size.
    shape = (HEADS, tokens, HEAD_DIM)
    raw = [(rng.standard_normal(shape).astype("float32").view("uint32") >> 16).astype("uint16")
           for _ in range(2 * LAYERS)]
    source = tokura.KvView.contiguous(raw[:LAYERS], raw[LAYERS:], dtype="bfloat16")
    chain = tokura.TokenChain(half, range(53_000_000, 53_000_000 + tokens))
    assert client.put(half, chain, source).ok
    out = [np.zeros_like(array) for array in raw]
    target = tokura.KvView.contiguous(out[:LAYERS], out[LAYERS:], dtype="bfloat16")
    assert client.get(half, lookup(client, half, chain), target).ok
    assert all(np.array_equal(a, b) for a, b in zip(out, raw, strict=True))


def test_read_only_memory_can_be_put_and_not_got(
    client: tokura.Client, namespace: tokura.Namespace
) -> None:
    memory = Memory(BLOCK_TOKENS, seed=3)
    for array in [*memory.k, *memory.v]:
        array.setflags(write=False)
    assert not memory.view().writable
    chain = tokura.TokenChain(namespace, range(54_000_000, 54_000_000 + BLOCK_TOKENS))
    assert client.put(namespace, chain, memory.view()).ok
    match = lookup(client, namespace, chain)
    with pytest.raises(tokura.InvalidArgument, match="read-only"):
        client.get(namespace, match, memory.view())


def test_views_that_do_not_fit_are_refused_at_once(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    memory = Memory(len(tokens), seed=4)
    with pytest.raises(tokura.InvalidArgument, match="layer"):
        client.put(namespace, chain, tokura.KvView.contiguous(memory.k[:1], memory.v[:1]))
    with pytest.raises(tokura.InvalidArgument):
        client.put(namespace, chain, Memory(len(tokens), 4, "float16").view())
    with pytest.raises(tokura.InvalidArgument):
        client.put(namespace, chain, Memory(BLOCK_TOKENS, 4).view(), blocks=4)
    with pytest.raises(TypeError, match="KvView"):
        client.put(namespace, chain, memory.k[0])  # type: ignore[arg-type]


def test_layouts_that_are_not_known_are_refused() -> None:
    k, v = paged("NHD")
    with pytest.raises(tokura.InvalidArgument, match="order"):
        tokura.KvPages.from_arrays(k, v, order="DHN")  # type: ignore[arg-type]
    with pytest.raises(tokura.InvalidArgument, match="dimensions"):
        tokura.KvPages.from_arrays([a[0] for a in k], v, order="NHD")
    with pytest.raises(tokura.InvalidArgument, match="layer 1 differs"):
        tokura.KvPages.from_arrays([k[0], k[1].copy()], v[:2], order="NHD")
    with pytest.raises(tokura.InvalidArgument, match="V has"):
        tokura.KvPages.from_arrays(k, v[:1], order="NHD")
    with pytest.raises(tokura.InvalidArgument, match="say dtype"):
        tokura.KvPages.from_arrays([a.view("uint32") for a in k], v, order="NHD")
    with pytest.raises(tokura.InvalidArgument, match="32 bits"):
        tokura.KvPages.from_arrays(k, v, order="NHD", dtype="float16")
    with pytest.raises(tokura.InvalidArgument, match="not an array"):
        tokura.KvPages.from_arrays([object()], None, order="NHD")
    with pytest.raises(tokura.InvalidArgument, match="CPU cache"):
        tokura.KvPages.vllm_cpu(k, head_dim=HEAD_DIM)


def test_page_tables_are_checked() -> None:
    k, v = paged("NHD")
    pages = tokura.KvPages.from_arrays(k, v, order="NHD")
    assert pages.view(TABLE, tokens=70).tokens == 70
    for table, tokens in (([0, PAGES], None), ([0], PAGE_TOKENS + 1), ([-1], None), ([0], -1)):
        with pytest.raises(tokura.InvalidArgument):
            pages.view(table, tokens)


def test_a_view_keeps_its_arrays_alive() -> None:
    class Owner:
        pass

    owner = Owner()
    gone = weakref.ref(owner)
    k, v = paged("NHD")
    pages = tokura.KvPages.from_arrays(k, v, order="NHD")
    pages._owner = (pages._owner, owner)
    view = pages.view(TABLE)
    del owner, pages
    gc.collect()
    assert gone() is not None
    del view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_torch_tensors(client: tokura.Client, name: tokura.DType) -> None:
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    namespace = tokura.Namespace(spec(dtype=name, model=f"torch {name}"))
    tokens = 3 * PAGE_TOKENS
    chain = tokura.TokenChain(namespace, range(tokens))
    k, v = ([torch.randn(HEADS, tokens, HEAD_DIM).to(dtype) for _ in range(LAYERS)] for _ in "kv")
    assert client.put(namespace, chain, tokura.KvView.contiguous(k, v)).ok
    match = lookup(client, namespace, chain)
    assert len(match) == tokens // BLOCK_TOKENS
    k2, v2 = ([torch.zeros_like(t) for t in half] for half in (k, v))
    assert client.get(namespace, match, tokura.KvView.contiguous(k2, v2)).ok
    assert all(torch.equal(a, b) for a, b in zip((*k, *v), (*k2, *v2), strict=True))


class DlpackOnly:
    """Another library's tensor: memory that only the DLPack protocol tells of."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: object) -> object:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


def test_tensors_of_any_library_that_speaks_dlpack(
    client: tokura.Client, namespace: tokura.Namespace
) -> None:
    source, match = stored(client, namespace, 56_000_000)
    k, v = paged("NHD")
    pages = tokura.KvPages.from_arrays(
        [DlpackOnly(array) for array in k], [DlpackOnly(array) for array in v], order="NHD"
    )
    assert client.get(namespace, match, pages.view(TABLE)).ok
    assert np.array_equal(sequence(k, "NHD"), np.stack(source.k))
    assert np.array_equal(sequence(v, "NHD"), np.stack(source.v))
    again = tokura.TokenChain(namespace, range(57_000_000, 57_000_000 + 3 * PAGE_TOKENS))
    assert client.put(namespace, again, pages.view(TABLE)).ok
    target = Memory(3 * PAGE_TOKENS)
    assert client.get(namespace, lookup(client, namespace, again), target.view()).ok
    assert np.array_equal(np.stack(target.k), np.stack(source.k))
