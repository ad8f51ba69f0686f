"""Pages whose elements no strides describe: taken apart into plain pages, and put together again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# Tokens (or channels) that lie beside each other in a row of an AMX tile, as pairs of 2-byte
# elements.
_TILE = 16
_PAIR = 2
ELEMENT_BYTES = 2


@dataclass(frozen=True)
class _Half:
    """K or V of one head in a page, with the same sizes in both forms. Strides and offsets in
    elements."""

    sizes: tuple[int, ...]
    packed_strides: tuple[int, ...]
    plain_strides: tuple[int, ...]
    packed_offset: int
    plain_offset: int


class AmxPacking:
    """The pages of vLLM's CPU attention on processors with AMX.

    Per head: K in tiles of 16 tokens, in which pairs of channels follow each other; then V in
    columns of 16 channels, in which pairs of tokens do. Plain pages are [pages, heads, tokens, K's
    channels and then V's], contiguous.
    """

    def __init__(self, heads: int, head_dim: int, tokens: int) -> None:
        """ValueError: pages that are not made of whole tiles."""
        if head_dim % _TILE or tokens % _TILE:
            raise ValueError(
                f"tokura: pages of {tokens} tokens and {head_dim} channels have no whole AMX tiles"
            )
        self._heads = heads
        self._head_elements = 2 * tokens * head_dim
        row = 2 * head_dim
        self._halves = (
            # K: tile of tokens, token, pair of channels, channel.
            _Half(
                sizes=(tokens // _TILE, _TILE, head_dim // _PAIR, _PAIR),
                packed_strides=(_TILE * head_dim, _PAIR, _TILE * _PAIR, 1),
                plain_strides=(_TILE * row, row, _PAIR, 1),
                packed_offset=0,
                plain_offset=0,
            ),
            # V: pair of tokens, token, column of channels, channel.
            _Half(
                sizes=(tokens // _PAIR, _PAIR, head_dim // _TILE, _TILE),
                packed_strides=(_TILE * _PAIR, 1, _TILE * tokens, _PAIR),
                plain_strides=(_PAIR * row, row, _TILE, 1),
                packed_offset=tokens * head_dim,
                plain_offset=head_dim,
            ),
        )

    def unpack(self, source: Any, page: int, plain: Any, at: int) -> None:
        """Bring the engine's page to page ``at`` of plain pages."""
        for half in self._halves:
            self._plain(half, plain, at).copy_(self._packed(half, source, page))

    def pack(self, plain: Any, at: int, target: Any, page: int) -> None:
        """Bring page ``at`` of plain pages to the engine's page."""
        for half in self._halves:
            self._packed(half, target, page).copy_(self._plain(half, plain, at))

    def _packed(self, half: _Half, tensor: Any, page: int) -> Any:
        page_stride, head_stride = tensor.stride()[:2]
        offset = tensor.storage_offset() + page * page_stride + half.packed_offset
        sizes, strides = (self._heads, *half.sizes), (head_stride, *half.packed_strides)
        return tensor.as_strided(sizes, strides, offset)

    def _plain(self, half: _Half, tensor: Any, page: int) -> Any:
        offset = page * self._heads * self._head_elements + half.plain_offset
        sizes, strides = (self._heads, *half.sizes), (self._head_elements, *half.plain_strides)
        return tensor.as_strided(sizes, strides, offset)
