#pragma once

// The real part encoder and decoder for Python (ctypes): plain C, float16 arrays in memory.

#include <cstdint>

extern "C" {

// How to code. All pointers are borrowed for the call.
struct TokuraQualityOptions {
  const char* codec;         // preset or "K+V"
  const char* profile_path;  // a profile file; empty: none
  const char* edge_codec;    // of layers that `edge` marks
  const uint32_t* layers;    // [group_layers] indices into the arrays' first axis: one layer group
  const uint8_t* edge;       // [group_layers] 1: coded with edge_codec
  uint32_t group_layers;
  uint32_t group;  // number of the layer group
  uint32_t sequences;
  uint32_t heads;
  uint32_t tokens;  // a multiple of block_tokens
  uint32_t head_dim;
  uint32_t block_tokens;
  uint32_t sink_tokens;
  uint32_t first_block;  // position in the chain of the arrays' first block
  uint32_t threads;
};

struct TokuraQualityResult {
  uint64_t part_bytes;   // all parts as a node would store them: header, record, table, layers
  uint64_t layer_bytes;  // their layers alone
  uint64_t layers_raw;   // layers that fell back to raw
  uint64_t layers_hash;  // of the encoded layers, in order: what the codec made of the values
  char message[256];
};

// Encode every block of every sequence as a part, verify it and decode it into k_out and v_out, of
// which only the layers of the group are written. All four arrays are
// [model layers][sequences][heads][tokens][head_dim] IEEE float16. 0, or -1 with a message.
// Blocking; starts its own threads. Thread-safe.
int tokura_quality_round_trip(const TokuraQualityOptions* options, const uint16_t* k,
                              const uint16_t* v, uint16_t* k_out, uint16_t* v_out,
                              TokuraQualityResult* result);

// Names of all presets, separated by spaces. Static.
const char* tokura_quality_presets();
}
