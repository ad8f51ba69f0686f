#include "cli/bench_lookup_blocks.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "cli/mix.h"
#include "common/check.h"
#include "proto/accept.h"

namespace tokura::cli {
namespace {

constexpr float kErrorMean = 0.09F;
constexpr float kErrorMax = 0.14F;

void AppendKey(const BlockKey& key, std::string* keys) {
  keys->append(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
}

void AddBlocks(uint64_t first, uint64_t count, proto::InventoryBatch* batch) {
  TOKURA_CHECK(count <= MadeInventory::kBatchBlocks);
  proto::FormClass* form_class = batch->add_classes();
  form_class->set_codec(kMadeCodec);
  form_class->set_group_mask(1);
  form_class->set_shards(1);
  form_class->set_fidelity(kWireQuantized);
  batch->mutable_keys()->reserve(count * BlockKey::kBytes);
  batch->mutable_parents()->reserve(count * BlockKey::kBytes);
  for (uint64_t block = first; block < first + count; ++block) {
    AppendKey(MadeKey(block), batch->mutable_keys());
    AppendKey(block % kMadeChainBlocks == 0 ? BlockKey{} : MadeKey(block - 1),
              batch->mutable_parents());
    batch->add_forms(1);
    batch->add_form_class(0);
    batch->add_stored_bytes(kMadeStoredBytes);
    batch->add_error_mean(kErrorMean);
    batch->add_error_max(kErrorMax);
  }
}

absl::Status Wrong(const std::string& what) {
  return absl::DataLossError(absl::StrCat("a lookup's answer is wrong: ", what));
}

absl::Status CheckRun(const proto::LocateReply& reply, const proto::Run& run,
                      const proto::NodeRef& holder) {
  const bool known = run.node() < static_cast<uint32_t>(reply.nodes_size()) &&
                     run.form_class() < static_cast<uint32_t>(reply.classes_size());
  if (!known) {
    return Wrong("a run of a node or class that is not listed");
  }
  const proto::NodeRef& node = reply.nodes(static_cast<int>(run.node()));
  const proto::FormClass& form_class = reply.classes(static_cast<int>(run.form_class()));
  if (node.node() != holder.node() || node.incarnation() != holder.incarnation()) {
    return Wrong(absl::StrCat("a run at ", node.node(), " incarnation ", node.incarnation(),
                              " and not at ", holder.node(), " incarnation ",
                              holder.incarnation()));
  }
  if (form_class.codec() != kMadeCodec || run.stored_bytes() != run.count() * kMadeStoredBytes) {
    return Wrong(absl::StrCat(run.count(), " blocks of ", run.stored_bytes(), " bytes in ",
                              form_class.codec()));
  }
  return absl::OkStatus();
}

}  // namespace

BlockKey MadeKey(uint64_t block) {
  const uint64_t words[2] = {Mix(block, 1), Mix(block, 2)};
  static_assert(sizeof(words) == BlockKey::kBytes);
  BlockKey key;
  std::memcpy(key.bytes.data(), words, sizeof(words));
  return key;
}

std::vector<BlockKey> MadeKeys(uint64_t first, uint64_t count) {
  std::vector<BlockKey> keys;
  keys.reserve(count);
  for (uint64_t block = first; block < first + count; ++block) {
    keys.push_back(MadeKey(block));
  }
  return keys;
}

proto::LocateRequest MakeLocateRequest(std::span<const BlockKey> keys) {
  static_assert(sizeof(BlockKey) == BlockKey::kBytes);
  proto::LocateRequest request;
  request.set_keys(keys.data(), keys.size_bytes());
  request.mutable_accept();
  request.add_groups();  // group 0, in every block
  request.set_touch(true);
  return request;
}

absl::Status CheckLocated(const proto::LocateReply& reply, uint32_t blocks,
                          const proto::NodeRef& holder) {
  if (reply.prefix_blocks() != blocks) {
    return Wrong(absl::StrCat(reply.prefix_blocks(), " blocks and not ", blocks));
  }
  uint64_t covered = 0;
  for (const proto::Run& run : reply.runs()) {
    if (run.first() != covered || run.count() == 0) {
      return Wrong(
          absl::StrCat("a run of ", run.count(), " blocks from ", run.first(), " after ", covered));
    }
    if (absl::Status status = CheckRun(reply, run, holder); !status.ok()) {
      return status;
    }
    covered += run.count();
  }
  return covered == blocks ? absl::OkStatus()
                           : Wrong(absl::StrCat("runs over ", covered, " of ", blocks, " blocks"));
}

std::vector<proto::InventoryBatch> MadeInventory::Snapshot(uint64_t first, uint64_t count) {
  ++snapshots_;
  std::vector<proto::InventoryBatch> chunks;
  uint64_t done = 0;
  do {
    const uint64_t size = std::min(kBatchBlocks, count - done);
    proto::InventoryBatch& chunk = chunks.emplace_back();
    chunk.set_node(node_.node());
    chunk.set_incarnation(node_.incarnation());
    chunk.set_first_seq(log_);
    chunk.set_last_seq(log_);
    chunk.set_snapshot(snapshots_);
    chunk.set_chunk(static_cast<uint32_t>(chunks.size() - 1));
    AddBlocks(first + done, size, &chunk);
    done += size;
    chunk.set_last_chunk(done == count);
  } while (done < count);
  return chunks;
}

proto::InventoryBatch MadeInventory::Added(uint64_t first, uint64_t count) {
  proto::InventoryBatch batch = Delta(count);
  AddBlocks(first, count, &batch);
  return batch;
}

proto::InventoryBatch MadeInventory::Removed(uint64_t block) {
  proto::InventoryBatch batch = Delta(1);
  AppendKey(MadeKey(block), batch.mutable_removed());
  return batch;
}

proto::InventoryBatch MadeInventory::Delta(uint64_t changes) {
  proto::InventoryBatch batch;
  batch.set_node(node_.node());
  batch.set_incarnation(node_.incarnation());
  batch.set_first_seq(log_);
  log_ += changes;
  batch.set_last_seq(log_);
  return batch;
}

}  // namespace tokura::cli
