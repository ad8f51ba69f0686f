#pragma once

#include <cstddef>
#include <cstdint>

namespace tokura {

// The bytes of a Match (Match::Serialize, Match::Parse). All integers are little-endian:
//
//   u32 magic "TKMT" ‖ u16 version ‖ u16 flags (1: content ids, 2: stored bytes, 4: codecs)
//   ‖ fingerprint (32) ‖ u32 block_tokens
//   ‖ u32 holders, each: u16 length and the node's name ‖ u64 incarnation ‖ lease (16)
//   ‖ u32 runs, each: u32 holder ‖ u32 first ‖ u32 count; then alternates the same way
//   ‖ u32 blocks ‖ keys (16 each)
//   ‖ with flag 1: content ids (16 each) ‖ with flag 2: u64 each
//   ‖ with flag 4: u16 names, each: u16 length and a codec's name; then u16 per block: its name
//   ‖ u32 CRC-32C of everything before
//
// Parse refuses whatever Serialize would not write: another version, a wrong CRC, runs that do not
// cover the blocks in order, names that are not in the order of their first use, bytes left over.
// The lists of a match that do not have one entry per key count as absent.
inline constexpr uint32_t kMatchMagic = 0x544d4b54;
inline constexpr uint16_t kMatchVersion = 1;
inline constexpr size_t kMatchBlocksMax = size_t{1} << 20;
inline constexpr size_t kMatchHoldersMax = 4096;
inline constexpr size_t kMatchNameBytesMax = 256;  // of a node or a codec

}  // namespace tokura
