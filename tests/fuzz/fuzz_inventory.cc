// Inventory batches as a node may send them, in any order, between lookups and slices of work.
// Whatever comes, the index stays sound, a refused batch changes nothing, and an answer covers
// exactly its prefix.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "coordinator/inventory.h"
#include "coordinator/prefix_index.h"
#include "proto/cluster.pb.h"

namespace tokura::coordinator {
namespace {

constexpr size_t kKeys = 24;
const char* const kNodes[] = {"a", "b", "c"};

class NoSink : public PrefixIndexSink {
 public:
  void Touched(NodeSlot, const BlockKey&) override {}
  void Orphaned(NodeSlot, const BlockKey&) override {}
};

// The rest of the input; zeros after its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) {
      return 0;
    }
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  uint32_t Below(uint32_t n) { return Byte() % n; }
  std::string_view Take(size_t count) {
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

 private:
  std::string_view bytes_;
};

BlockKey Key(uint32_t i) {
  BlockKey key;
  key.bytes[3] = static_cast<uint8_t>(i);
  return key;
}

std::string KeyBytes(uint32_t i) {
  const BlockKey key = Key(i);
  return std::string(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

class Session {
 public:
  explicit Session(std::string_view bytes) : input_(bytes) {
    PrefixIndexOptions options;
    options.blocks_max = 20;  // fewer than there are keys
    index_ = std::move(PrefixIndex::Create(options, sink_)).value();
    inventory_ = std::make_unique<Inventory>(*index_);
  }

  void Run() {
    while (!input_.empty()) {
      Step();
      const absl::Status sound = index_->CheckInvariants();
      TOKURA_CHECK(sound.ok());
    }
  }

 private:
  void Step() {
    switch (input_.Below(8)) {
      case 0:
        (void)inventory_->Admit(kNodes[input_.Below(3)], 1 + input_.Below(4));
        return;
      case 1:
        inventory_->Forget(kNodes[input_.Below(3)]);
        return;
      case 2: {
        const size_t steps = input_.Byte();
        index_->Work(steps, input_.Below(2) == 0 ? PrefixIndex::Orphans::kTell
                                                 : PrefixIndex::Orphans::kHold);
        return;
      }
      case 3:
        Locate();
        return;
      case 4:
        ApplyRaw();
        return;
      default:
        Apply(MakeBatch());
    }
  }

  void ApplyRaw() {
    const size_t bytes = input_.Byte();
    proto::InventoryBatch batch;
    if (batch.ParseFromString(std::string(input_.Take(bytes)))) {
      Apply(batch);
    }
  }

  void Apply(const proto::InventoryBatch& batch) {
    const uint64_t records = inventory_->stats().records;
    const uint64_t forms = index_->stats().forms;
    if (!inventory_->Apply(batch).ok()) {
      TOKURA_CHECK(inventory_->stats().records == records && index_->stats().forms == forms);
    }
  }

  // Mostly well formed, of a few nodes, keys and positions, so that streams get somewhere.
  proto::InventoryBatch MakeBatch() {
    proto::InventoryBatch batch;
    batch.set_node(kNodes[input_.Below(3)]);
    batch.set_incarnation(1 + input_.Below(4));
    batch.set_first_seq(input_.Below(4));
    batch.set_last_seq(batch.first_seq());
    batch.set_snapshot(input_.Below(3));
    if (batch.snapshot() == 0) {
      batch.set_last_seq(batch.first_seq() + input_.Below(3));
    } else {
      batch.set_chunk(input_.Below(3));
      batch.set_last_chunk(input_.Below(2) == 1);
    }
    proto::FormClass& form_class = *batch.add_classes();
    form_class.set_codec(std::string(1 + input_.Below(2), 'c'));
    form_class.set_group_mask(1 + input_.Below(3));
    form_class.set_shards(1);
    form_class.set_fidelity(1 + input_.Below(3));
    for (uint32_t left = input_.Below(8); left > 0; --left) {
      AddKey(batch);
    }
    return batch;
  }

  void AddKey(proto::InventoryBatch& batch) {
    const uint32_t key = 1 + input_.Below(kKeys);
    if (batch.snapshot() == 0 && input_.Below(3) == 0) {
      batch.mutable_removed()->append(KeyBytes(key));
      return;
    }
    batch.mutable_keys()->append(KeyBytes(key));
    batch.mutable_parents()->append(KeyBytes(input_.Below(4) == 0 ? input_.Below(kKeys) : key - 1));
    const uint32_t forms = 1 + input_.Below(3);
    batch.add_forms(forms);
    for (uint32_t i = 0; i < forms; ++i) {
      batch.add_form_class(0);
      batch.add_stored_bytes(input_.Byte());
      batch.add_error_mean(static_cast<float>(input_.Byte()));
      batch.add_error_max(1);
    }
  }

  void Locate() {
    std::vector<BlockKey> keys;
    for (uint32_t i = 1; i <= kKeys; ++i) {
      keys.push_back(Key(i));
    }
    std::vector<NodeStanding> nodes(inventory_->slots());
    for (NodeStanding& node : nodes) {
      node = {static_cast<NodeStanding::Use>(input_.Below(3)), input_.Byte()};
    }
    AcceptRule accept;
    accept.allow_summary = input_.Below(2) == 1;
    LocateQuery query;
    query.keys = keys;
    query.accept = &accept;
    query.nodes = nodes;
    query.touch = LocateQuery::Touch::kYes;
    LocateResult result;
    index_->Locate(query, result);
    uint32_t covered = 0;
    for (const IndexRun& run : result.runs) {
      TOKURA_CHECK(run.first == covered && run.count > 0);
      TOKURA_CHECK(nodes[run.node].use != NodeStanding::Use::kHidden);
      covered += run.count;
    }
    TOKURA_CHECK(covered == result.prefix_blocks);
    uint32_t end = 0;
    for (const IndexRun& run : result.alternates) {
      TOKURA_CHECK(run.first >= end && nodes[run.node].use == NodeStanding::Use::kUsable);
      end = run.first + run.count;
    }
    TOKURA_CHECK(end <= covered);
  }

  Input input_;
  NoSink sink_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<Inventory> inventory_;
};

}  // namespace
}  // namespace tokura::coordinator

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tokura::coordinator::Session session(
      std::string_view(reinterpret_cast<const char*>(data), std::min<size_t>(size, 4096)));
  session.Run();
  return 0;
}
