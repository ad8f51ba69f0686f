#include "kernels/tile_meter.h"

#include <algorithm>

#include "kernels/quantize.h"

namespace tokura::kernels {
namespace {

constexpr size_t kAlignment = 64;

bool SamePlaces(const TileOperands& a, const TileOperands& b) {
  return a.tokens == b.tokens && a.k_dim == b.k_dim && a.v_dim == b.v_dim && a.queries == b.queries;
}

// Hands out aligned arrays, one after the other. Without memory it only counts.
class Places {
 public:
  explicit Places(std::byte* maybe_memory) : maybe_memory_(maybe_memory) {}
  template <typename T>
  void Put(size_t count, T** array) {
    *array = maybe_memory_ == nullptr ? nullptr : reinterpret_cast<T*>(maybe_memory_ + bytes_);
    bytes_ += (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* const maybe_memory_;
  size_t bytes_ = 0;
};

size_t PutAll(TileOperands* o, std::byte* maybe_memory) {
  Places places(maybe_memory);
  const size_t query_elements = size_t{o->query_tiles} * o->k_columns * kTileRows;
  const size_t key_elements = size_t{o->token_rows} * o->k_columns;
  const size_t value_elements = size_t{o->token_rows} * o->v_columns;
  const size_t score_elements = size_t{o->query_tiles} * o->token_rows * kTileRows;
  places.Put(query_elements, &o->packed_queries);
  places.Put(key_elements, &o->keys);
  places.Put(key_elements, &o->key_errors);
  places.Put(value_elements, &o->values);
  places.Put(value_elements, &o->value_errors);
  places.Put(score_elements, &o->scores);
  places.Put(score_elements, &o->score_errors);
  places.Put(score_elements, &o->weights);
  places.Put(score_elements, &o->weight_errors);
  return places.bytes();
}

}  // namespace

void TileMeter::Place(const RecordInput& input, uint32_t count) {
  TileOperands next;
  next.tokens = input.k.task.shape.tokens;
  next.token_rows = AlignUp(next.tokens, kTileDepth);
  next.k_dim = input.k.task.shape.dim;
  next.k_columns = AlignUp(next.k_dim, kTileDepth);
  next.v_dim = input.v_dim;
  next.v_columns = AlignUp(next.v_dim, kTileRows);
  next.queries = count;
  next.query_tiles = (count + kTileRows - 1) / kTileRows;
  if (!SamePlaces(next, operands_)) {
    memory_.assign(PutAll(&next, nullptr) + kAlignment, std::byte{0});
    std::byte* memory = memory_.data();
    memory += -reinterpret_cast<uintptr_t>(memory) % kAlignment;
    PutAll(&next, memory);
    operands_ = next;
  }
  operands_.k_exact = input.k.task.side.raw();
  operands_.v_exact = input.v.task.side.raw();
}

// The rows where the engine has them, when they lie in one page with contiguous channels.
TileRows TileMeter::Exact(const RecordSide& side, TokenRange rows) {
  const SideAccess& access = side.access;
  const auto element = static_cast<int64_t>(DTypeBytes(access.dtype));
  const uint32_t token = side.first_token + rows.first;
  const uint32_t slot = token % access.page_tokens;
  TileRows loaded;
  loaded.dtype = access.dtype;
  loaded.dim = access.dim;
  loaded.first = rows.first;
  loaded.count = rows.count;
  if (access.channel_stride == element && rows.count <= access.page_tokens - slot) {
    loaded.exact = access.base +
                   int64_t{access.page_table[token / access.page_tokens]} * access.page_stride +
                   int64_t{slot} * access.token_stride;
    loaded.stride = access.token_stride;
    return loaded;
  }
  loaded.stride = element * access.dim;
  exact_.resize(std::max(exact_.size(), static_cast<size_t>(loaded.stride) * rows.count));
  GatherRaw(access, {token, rows.count}, exact_.data());
  loaded.exact = exact_.data();
  return loaded;
}

TileRows TileMeter::Load(const RecordSide& side, TokenRange rows) {
  TileRows loaded = Exact(side, rows);
  if (!side.task.side.raw()) {
    decoded_.resize(std::max(decoded_.size(), size_t{rows.count} * side.task.shape.dim));
    DecodeSide(side.task, side.coded, rows, &scratch_, decoded_.data());
    loaded.maybe_decoded = decoded_.data();
  }
  return loaded;
}

RecordSums TileMeter::Measure(const TileRecordKernels& kernels, const RecordInput& input,
                              const TileQueries& queries, uint32_t count) {
  Place(input, count);
  kernels.pack_queries(operands_, queries);
  ForEachRecordPiece(input.k.task.shape, [&](TokenRange rows) {
    const TileRows loaded = Load(input.k, rows);
    kernels.score(operands_, loaded);
    if (input.v_is_k) {
      kernels.pack_values(operands_, loaded);
    }
  });
  kernels.weigh(operands_);
  if (!input.v_is_k) {
    ForEachRecordPiece(input.v.task.shape, [&](TokenRange rows) {
      kernels.pack_values(operands_, Load(input.v, rows));
    });
  }
  return kernels.measure(operands_);
}

}  // namespace tokura::kernels
