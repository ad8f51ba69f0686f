#include "cache-node/inventory_feed.h"

#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "common/check.h"

namespace tokura::node {
namespace {

// The planted bug skip_delta leaves out one change in so many.
constexpr uint64_t kSkippedEvery = 8;

void Append(std::string* bytes, const BlockKey& key) {
  bytes->append(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

// Writes records into a batch, column by column, for as long as it may grow.
class BatchWriter {
 public:
  BatchWriter(const BlockStore& store, const InventoryFeed::Limits& limits,
              proto::InventoryBatch* batch)
      : store_(store), limits_(limits), batch_(batch) {}

  // False: the batch is full; nothing was added.
  bool AddHeld(const Inventory& inventory, const Inventory::Record& record) {
    size_t bytes = kBytesPerKey + record.forms * kBytesPerForm;
    for (uint32_t i = 0; i < record.forms; ++i) {
      bytes += store_.CodecText(inventory.forms[record.first_form + i].codec).size();
    }
    if (!Take(bytes, record.forms)) {
      return false;
    }
    Append(batch_->mutable_keys(), record.key);
    Append(batch_->mutable_parents(), record.parent);
    batch_->add_forms(record.forms);
    for (uint32_t i = 0; i < record.forms; ++i) {
      const FormInfo& form = inventory.forms[record.first_form + i];
      batch_->add_form_class(ClassOf(form));
      batch_->add_stored_bytes(form.stored_bytes);
      batch_->add_error_mean(static_cast<float>(form.error_mean));
      batch_->add_error_max(static_cast<float>(form.error_max));
    }
    return true;
  }
  bool AddRemoved(const BlockKey& key) {
    if (!Take(BlockKey::kBytes, 0)) {
      return false;
    }
    Append(batch_->mutable_removed(), key);
    return true;
  }

 private:
  // Upper bounds of what protobuf takes: two ids and a count; class and size as varints, two
  // floats, and a class of its own without the codec's name.
  static constexpr size_t kBytesPerKey = 2 * BlockKey::kBytes + 2;
  static constexpr size_t kBytesPerForm = 3 + 10 + 8 + 28;

  bool Take(size_t bytes, uint32_t forms) {
    if (keys_ + 1 > limits_.keys || forms_ + forms > limits_.forms ||
        bytes_ + bytes > limits_.bytes) {
      return false;
    }
    ++keys_;
    forms_ += forms;
    bytes_ += bytes;
    return true;
  }
  uint32_t ClassOf(const FormInfo& form) {
    const auto id = std::make_tuple(form.codec, form.group_mask, form.shards,
                                    static_cast<uint32_t>(form.fidelity), form.proxy_error);
    const auto [entry, made] = classes_.emplace(id, static_cast<uint32_t>(batch_->classes_size()));
    if (made) {
      proto::FormClass* form_class = batch_->add_classes();
      form_class->set_codec(std::string(store_.CodecText(form.codec)));
      form_class->set_group_mask(form.group_mask);
      form_class->set_shards(form.shards);
      form_class->set_fidelity(static_cast<uint32_t>(form.fidelity));
      form_class->set_proxy_error(form.proxy_error);
    }
    return entry->second;
  }

  const BlockStore& store_;
  const InventoryFeed::Limits& limits_;
  proto::InventoryBatch* batch_;
  std::map<std::tuple<CodecId, uint32_t, uint32_t, uint32_t, bool>, uint32_t> classes_;
  size_t keys_ = 0;
  size_t forms_ = 0;
  size_t bytes_ = 0;
};

}  // namespace

InventoryFeed::InventoryFeed(const BlockStore& store, std::string node, PlantedBugs bugs,
                             Limits limits)
    : store_(store), node_(std::move(node)), bugs_(bugs), limits_(limits) {}

std::optional<proto::InventoryBatch> InventoryFeed::Next(uint64_t incarnation, TimePoint now) {
  if (outstanding_.has_value()) {
    return std::nullopt;
  }
  if (!snapshot_.has_value() && !snapshot_due_) {
    // Without a batch, either nothing has changed or the log was too short and a snapshot is due.
    std::optional<proto::InventoryBatch> batch = NextChanges(incarnation, now);
    if (batch.has_value() || !snapshot_due_) {
      return batch;
    }
  }
  if (std::exchange(snapshot_due_, false)) {
    ++snapshots_;
    snapshot_.emplace();
    // First the position, then the walk: what changes in between is told twice, not never.
    snapshot_->cut = store_.change_position();
  }
  return NextChunk(incarnation, now);
}

proto::InventoryBatch InventoryFeed::Header(uint64_t incarnation) const {
  proto::InventoryBatch batch;
  batch.set_node(node_);
  batch.set_incarnation(incarnation);
  return batch;
}

std::optional<proto::InventoryBatch> InventoryFeed::NextChanges(uint64_t incarnation,
                                                                TimePoint now) {
  const absl::StatusOr<Changes> changes = store_.ChangesAfter(position_, limits_.keys);
  if (!changes.ok()) {
    snapshot_due_ = true;
    return std::nullopt;
  }
  if (changes->keys.empty()) {
    return std::nullopt;
  }
  std::vector<BlockKey> keys;           // each once, by first change
  std::vector<uint64_t> first_changes;  // their numbers
  absl::flat_hash_set<BlockKey> seen;
  for (size_t i = 0; i < changes->keys.size(); ++i) {
    const uint64_t change = position_ + 1 + i;
    const bool skipped = bugs_.skip_delta && change % kSkippedEvery == 0;
    if (!skipped && seen.insert(changes->keys[i]).second) {
      keys.push_back(changes->keys[i]);
      first_changes.push_back(change);
    }
  }
  proto::InventoryBatch batch = Header(incarnation);
  BatchWriter writer(store_, limits_, &batch);
  uint64_t last = changes->last;
  const Inventory inventory = store_.Describe(keys, now);
  for (size_t i = 0; i < keys.size(); ++i) {
    const Inventory::Record& record = inventory.records[i];
    if (!(record.forms > 0 ? writer.AddHeld(inventory, record) : writer.AddRemoved(record.key))) {
      last = first_changes[i] - 1;
      break;
    }
  }
  TOKURA_CHECK(last > position_);
  batch.set_first_seq(position_);
  batch.set_last_seq(last);
  outstanding_ = last;
  return batch;
}

proto::InventoryBatch InventoryFeed::NextChunk(uint64_t incarnation, TimePoint now) {
  Snapshot& snapshot = *snapshot_;
  if (snapshot.keys.empty() && !snapshot.walked) {
    HeldKeys held = store_.ListHeld(snapshot.cursor, limits_.keys);
    snapshot.keys = std::move(held.keys);
    snapshot.cursor = held.cursor;
    snapshot.walked = held.end;
  }
  proto::InventoryBatch batch = Header(incarnation);
  BatchWriter writer(store_, limits_, &batch);
  const Inventory inventory = store_.Describe(snapshot.keys, now);
  size_t told = 0;
  for (const Inventory::Record& record : inventory.records) {
    // What has gone since the walk is left out: a change behind the cut says so.
    if (record.forms > 0 && !writer.AddHeld(inventory, record)) {
      break;
    }
    ++told;
  }
  snapshot.keys.erase(snapshot.keys.begin(), snapshot.keys.begin() + static_cast<ptrdiff_t>(told));
  batch.set_first_seq(snapshot.cut);
  batch.set_last_seq(snapshot.cut);
  batch.set_snapshot(snapshots_);
  batch.set_chunk(snapshot.chunk++);
  batch.set_last_chunk(snapshot.walked && snapshot.keys.empty());
  outstanding_ = snapshot.cut;
  return batch;
}

void InventoryFeed::Delivered() {
  TOKURA_CHECK(outstanding_.has_value());
  const uint64_t delivered = *std::exchange(outstanding_, std::nullopt);
  if (snapshot_due_) {
    return;  // It was overtaken by a new beginning.
  }
  if (!snapshot_.has_value()) {
    position_ = delivered;
  } else if (snapshot_->walked && snapshot_->keys.empty()) {
    position_ = delivered;
    snapshot_.reset();
  }
}

void InventoryFeed::Lost() {
  outstanding_.reset();
  if (snapshot_.has_value()) {
    Restart();
  }
}

void InventoryFeed::Restart() {
  snapshot_.reset();
  snapshot_due_ = true;
}

}  // namespace tokura::node
