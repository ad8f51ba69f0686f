#pragma once

// What a coordinator believes of one node, after the rules of WIRE.md; strict about every batch.

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "cache-node/block_store.h"
#include "common/net/transport.h"
#include "proto/cluster.pb.h"

namespace tokura::node {

inline std::vector<BlockKey> SplitKeys(const std::string& bytes) {
  EXPECT_EQ(bytes.size() % BlockKey::kBytes, 0u);
  std::vector<BlockKey> keys(bytes.size() / BlockKey::kBytes);
  for (size_t i = 0; i < keys.size(); ++i) {
    std::memcpy(keys[i].bytes.data(), bytes.data() + i * BlockKey::kBytes, BlockKey::kBytes);
  }
  return keys;
}

class InventoryModel {
 public:
  struct Entry {
    BlockKey parent;
    std::multiset<std::string> forms;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  using Content = std::map<BlockKey, Entry>;

  static std::string FormText(const std::string& codec, uint32_t groups, uint32_t shards,
                              uint32_t fidelity, uint64_t bytes, float mean) {
    return absl::StrCat(codec, "/", groups, "/", shards, "/", fidelity, "/", bytes, "/", mean);
  }
  // What the store holds of `keys`, in the model's terms.
  static Content Of(const BlockStore& store, const std::vector<BlockKey>& keys, TimePoint now) {
    Content content;
    const Inventory inventory = store.Describe(keys, now);
    for (const Inventory::Record& record : inventory.records) {
      for (uint32_t i = 0; i < record.forms; ++i) {
        const FormInfo& form = inventory.forms[record.first_form + i];
        Entry& entry = content[record.key];
        entry.parent = record.parent;
        entry.forms.insert(FormText(std::string(store.CodecText(form.codec)), form.group_mask,
                                    form.shards, static_cast<uint32_t>(form.fidelity),
                                    form.stored_bytes, static_cast<float>(form.error_mean)));
      }
    }
    return content;
  }

  proto::InventoryReply Apply(const proto::InventoryBatch& batch) {
    proto::InventoryReply reply;
    EXPECT_LT(batch.ByteSizeLong(), net::kMessageBytesMax);
    const Content held = Read(batch);
    incarnation = batch.incarnation();
    if (batch.snapshot() > 0) {
      EXPECT_TRUE(batch.removed().empty());
      EXPECT_EQ(batch.first_seq(), batch.last_seq());
      if (batch.chunk() == 0) {
        arriving_.clear();
        snapshot_ = batch.snapshot();
        chunk_ = 0;
        ++snapshots;
      }
      if (batch.snapshot() != snapshot_ || batch.chunk() != chunk_++) {
        reply.set_send_snapshot(true);
        return reply;
      }
      for (const auto& [key, entry] : held) {
        arriving_[key] = entry;
      }
      if (batch.last_chunk()) {
        content = std::move(arriving_);
        arriving_.clear();
        last_seq = batch.last_seq();
        complete = true;
        snapshot_ = 0;
      }
      return reply;
    }
    if (!complete || batch.first_seq() != last_seq) {
      complete = false;
      ++gaps;
      reply.set_send_snapshot(true);
      return reply;
    }
    EXPECT_GT(batch.last_seq(), batch.first_seq());
    for (const auto& [key, entry] : held) {
      content[key] = entry;
    }
    for (const BlockKey& key : SplitKeys(batch.removed())) {
      content.erase(key);
    }
    last_seq = batch.last_seq();
    return reply;
  }

  Content content;
  bool complete = false;
  uint64_t incarnation = 0;
  uint64_t last_seq = 0;
  int snapshots = 0;
  int gaps = 0;

 private:
  static Content Read(const proto::InventoryBatch& batch) {
    Content held;
    const std::vector<BlockKey> keys = SplitKeys(batch.keys());
    const std::vector<BlockKey> parents = SplitKeys(batch.parents());
    EXPECT_EQ(parents.size(), keys.size());
    EXPECT_EQ(static_cast<size_t>(batch.forms_size()), keys.size());
    int at = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_EQ(held.count(keys[i]), 0u) << "a key comes twice in a batch";
      Entry& entry = held[keys[i]];
      entry.parent = parents[i];
      EXPECT_GT(batch.forms(static_cast<int>(i)), 0u);
      for (uint32_t f = 0; f < batch.forms(static_cast<int>(i)); ++f, ++at) {
        const proto::FormClass& form = batch.classes(static_cast<int>(batch.form_class(at)));
        entry.forms.insert(FormText(form.codec(), form.group_mask(), form.shards(), form.fidelity(),
                                    batch.stored_bytes(at), batch.error_mean(at)));
      }
    }
    EXPECT_EQ(batch.form_class_size(), at);
    EXPECT_EQ(batch.stored_bytes_size(), at);
    EXPECT_EQ(batch.error_max_size(), at);
    for (const BlockKey& key : SplitKeys(batch.removed())) {
      EXPECT_EQ(held.count(key), 0u) << "held and removed in one batch";
    }
    return held;
  }

  Content arriving_;
  uint64_t snapshot_ = 0;
  uint32_t chunk_ = 0;
};

}  // namespace tokura::node
