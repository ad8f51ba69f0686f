#pragma once

// What tests of the block store share: ids from numbers, parts whose bytes tell what they are, and
// puts of whole blocks.

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "cache-node/block_store.h"
#include "common/check.h"

namespace tokura::node {

template <typename T>
T NumberedId(uint64_t number) {
  T id;
  // Spread over all bytes, as SHA-256 would.
  for (size_t i = 0; i < T::kBytes; i += 8) {
    const uint64_t word = (number + 1) * 0x9e3779b97f4a7c15u + i * 0xbf58476d1ce4e5b9u;
    std::memcpy(id.bytes.data() + i, &word, 8);
  }
  return id;
}

inline BlockKey Key(uint64_t number) {
  return NumberedId<BlockKey>(number);
}
inline ContentId Content(uint64_t number) {
  return NumberedId<ContentId>(number);
}
inline Fingerprint Space(uint64_t number = 0) {
  return NumberedId<Fingerprint>(number);
}
inline TimePoint At(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

// A put of one block by one writer.
struct BlockPut {
  uint64_t key = 0;
  int64_t parent = -1;  // number of the parent's key; negative: root
  uint32_t position = 0;
  uint64_t content = 1;
  std::string codec = "kivi4";
  uint32_t group_mask = 1;
  uint32_t shards = 1;
  uint64_t bytes = 10'000;  // per part
  uint64_t owner = 7;
  double epsilon = 0.1;  // of every layer; 0: exact
  bool proxy = false;
  uint64_t space = 0;
};

inline ReserveRequest RequestFor(const BlockPut& put, PartId part) {
  ReserveRequest request;
  request.fingerprint = Space(put.space);
  request.key = Key(put.key);
  request.parent = put.parent < 0 ? BlockKey{} : Key(static_cast<uint64_t>(put.parent));
  request.position = put.position;
  request.content_id = Content(put.content);
  request.codec = put.codec;
  request.group_mask = put.group_mask;
  request.shards = put.shards;
  request.part = part;
  request.bytes = put.bytes;
  request.owner = put.owner;
  return request;
}

inline kernels::PartInfo InfoFor(const BlockPut& put, PartId part) {
  kernels::PartInfo info;
  info.identity = {Space(put.space), Key(put.key), Content(put.content), part};
  info.shape = {DType::kFloat16, 2, 4, 64, 64, 64};
  info.codec = put.codec;
  info.fidelity = put.epsilon == 0 ? kernels::Fidelity::kExact : kernels::Fidelity::kQuantized;
  info.error.layers.assign(2, {put.epsilon * put.epsilon, 1.0});
  info.error.queries = 16;
  info.error.profile = put.proxy ? 0 : 99;
  info.part_bytes = put.bytes;
  return info;
}

// The byte that fills a part, different for different contents.
inline std::byte FillOf(uint64_t key, uint64_t content, PartId part) {
  return static_cast<std::byte>(key * 31 + content * 7 + part.group * 3 + part.shard + 1);
}

inline absl::StatusOr<CommitResult> PutPart(BlockStore& store, const BlockPut& put, PartId part,
                                            TimePoint now) {
  absl::StatusOr<Reservation> reservation = store.Reserve(RequestFor(put, part), now);
  if (!reservation.ok()) {
    return reservation.status();
  }
  std::memset(reservation->bytes().data(), static_cast<int>(FillOf(put.key, put.content, part)),
              reservation->bytes().size());
  return store.Commit(std::move(*reservation), InfoFor(put, part), now);
}

// All parts; the status of the first that fails, else what the last one got.
inline absl::StatusOr<CommitResult> PutBlock(BlockStore& store, const BlockPut& put,
                                             TimePoint now) {
  absl::StatusOr<CommitResult> result = CommitResult::kWaiting;
  for (uint8_t group = 0; group < 8; ++group) {
    for (uint32_t shard = 0; shard < put.shards && (put.group_mask >> group & 1) != 0; ++shard) {
      result = PutPart(store, put, {group, static_cast<uint8_t>(shard)}, now);
      if (!result.ok()) {
        return result;
      }
    }
  }
  return result;
}

inline std::unique_ptr<BlockStore> MakeStore(StoreOptions options, PlantedBugs bugs = {}) {
  absl::StatusOr<std::unique_ptr<BlockStore>> store = BlockStore::Create(options, bugs);
  TOKURA_CHECK(store.ok());
  return std::move(*store);
}

inline bool Has(BlockStore& store, uint64_t key, uint64_t space = 0) {
  return !store.Forms(Space(space), Key(key)).empty();
}

inline std::vector<FormPin> PinKeys(BlockStore& store, std::vector<BlockKey> keys, TimePoint now,
                                    Gaps gaps = Gaps::kCut) {
  PinQuery query;
  query.fingerprint = Space();
  query.keys = keys;
  query.accept.allow_summary = true;
  query.gaps = gaps;
  return store.Pin(query, now);
}

// Whether every byte of every part is what its writer put.
inline bool BytesAreRight(const FormPin& pin, uint64_t key, uint64_t content) {
  for (uint8_t group = 0; group < 8; ++group) {
    for (uint32_t shard = 0; shard < pin.info().shards; ++shard) {
      const PartId part{group, static_cast<uint8_t>(shard)};
      for (const std::byte byte : pin.part(part)) {
        if (byte != FillOf(key, content, part)) {
          return false;
        }
      }
    }
  }
  return true;
}

}  // namespace tokura::node
