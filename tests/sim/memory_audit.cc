#include "tests/sim/memory_audit.h"

#include <bit>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "kernels/part.h"

namespace tokura::sim {
namespace {

// What a node may still need, after its end of a connection has closed, to give up its requests.
constexpr Duration kGivingUp = std::chrono::microseconds(100);

std::span<std::byte> ArenaOf(const NodeProcess& process) {
  return process.transports.front()->registered().front();
}

}  // namespace

MemoryAudit::StoredPart MemoryAudit::IdOf(const node::ExtentHeader& header) {
  return {header.content_id, header.key, header.part.group, header.part.shard};
}

std::vector<node::Extent> MemoryAudit::StoredExtents(const NodeProcess& process) {
  const std::span<std::byte> arena = ArenaOf(process);
  std::vector<node::Extent> stored;
  uint64_t offset = 0;
  while (offset + node::kExtentHeaderBytes <= arena.size()) {
    node::Extent extent;
    extent.offset = offset;
    std::memcpy(&extent.header, arena.data() + offset, sizeof(extent.header));
    TOKURA_CHECK(extent.header.magic == node::ExtentHeader::kMagic);
    TOKURA_CHECK(extent.header.extent_bytes >= node::kExtentHeaderBytes);
    offset += extent.header.extent_bytes;
    if (extent.header.state == node::ExtentState::kStored) {
      stored.push_back(extent);
    }
  }
  return stored;
}

std::span<std::byte> MemoryAudit::Payload(const NodeProcess& process, const node::Extent& extent) {
  return ArenaOf(process).subspan(extent.offset + node::kExtentHeaderBytes,
                                  extent.header.payload_bytes);
}

void MemoryAudit::Check() {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    if (!cluster_.node(i).ghost) {
      CheckNode(cluster_.node(i));
    }
  }
}

void MemoryAudit::CheckAll() {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    const NodeProcess& process = cluster_.node(i);
    CheckNode(process);
    for (const node::Extent& extent : StoredExtents(process)) {
      if (views_[&process].flipped.count(IdOf(extent.header)) == 0) {
        CheckPart(process, extent);
      }
    }
  }
}

void MemoryAudit::CheckNode(const NodeProcess& process) {
  View& view = views_[&process];
  std::set<StoredPart> stored;
  for (const node::Extent& extent : StoredExtents(process)) {
    const StoredPart id = IdOf(extent.header);
    stored.insert(id);
    if (view.stored.count(id) == 0 && view.flipped.count(id) == 0) {
      CheckPart(process, extent);
      CheckWriter(process, view, extent);
    }
  }
  view.stored = std::move(stored);
  CheckRemovals(process, view);
  SeeWhoIsGone(process, view);
  view.checked = cluster_.scheduler().Now();
}

void MemoryAudit::CheckPart(const NodeProcess& process, const node::Extent& extent) {
  ++parts_checked_;
  const node::ExtentHeader& header = extent.header;
  const kernels::PartIdentity expected{header.fingerprint, header.key, header.content_id,
                                       header.part};
  const auto info = kernels::VerifyPart(Payload(process, extent), &expected);
  if (!info.ok()) {
    checker_.Violation(absl::StrCat("STORED UNVERIFIED: ", process.name, " keeps a part of block ",
                                    header.position, ": ", info.status().ToString()));
  }
}

void MemoryAudit::CheckWriter(const NodeProcess& process, const View& view,
                              const node::Extent& extent) {
  const auto writer = writers_.find(extent.header.content_id);
  const auto gone = writer == writers_.end() ? view.gone.end() : view.gone.find(writer->second);
  if (gone != view.gone.end() && gone->second + kGivingUp <= view.checked) {
    checker_.Violation(absl::StrCat("LATE WRITE: ", process.name, " stored a part of block ",
                                    extent.header.position, " after the connection of its writer, ",
                                    writer->second->host->name(), ", had ended"));
  }
}

// A bit damages one form. What clients say of a block is no reason to lose it.
void MemoryAudit::CheckRemovals(const NodeProcess& process, const View& view) {
  const uint64_t removed = process.node->accounting().damaged_forms;
  if (removed > view.flips) {
    checker_.Violation(absl::StrCat("SOUND BLOCK REMOVED: ", process.name, " took ", removed,
                                    " forms for damaged; of its memory ", view.flips,
                                    " bits were flipped"));
  }
}

void MemoryAudit::SeeWhoIsGone(const NodeProcess& process, View& view) {
  for (const ClientProcess* client : cluster_.crashed_clients()) {
    if (cluster_.network().Connected(*process.host, *client->host) || process.host->paused()) {
      continue;
    }
    writers_gone_ += view.gone.try_emplace(client, cluster_.scheduler().Now()).second ? 1 : 0;
  }
}

std::vector<MemoryAudit::HeldForm> MemoryAudit::Held(size_t index) const {
  // Parts that are stored of each writer's set.
  std::map<std::pair<BlockKey, ContentId>, uint32_t> stored;
  std::vector<HeldForm> held;
  for (const node::Extent& extent : StoredExtents(cluster_.node(index))) {
    const node::ExtentHeader& header = extent.header;
    const uint32_t groups = static_cast<uint32_t>(std::popcount(header.group_mask));
    if (++stored[{header.key, header.content_id}] == groups * header.shards) {
      held.push_back({header.key, header.group_mask});
    }
  }
  return held;
}

std::optional<BlockKey> MemoryAudit::FlipOne(size_t index) {
  const NodeProcess& process = cluster_.node(index);
  const std::vector<node::Extent> stored = StoredExtents(process);
  if (stored.empty()) {
    return std::nullopt;
  }
  SimRandom& random = cluster_.random();
  const node::Extent& extent = stored[random.Below(stored.size())];
  const std::span<std::byte> payload = Payload(process, extent);
  const uint64_t bit = random.Below(payload.size() * 8);
  payload[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
  View& view = views_[&process];
  view.flipped.insert(IdOf(extent.header));
  ++view.flips;
  cluster_.scheduler().Record("memory flip", extent.offset, bit);
  return extent.header.key;
}

}  // namespace tokura::sim
