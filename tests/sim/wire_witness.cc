#include "tests/sim/wire_witness.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

using net::FrameHeader;
using net::Op;

// A reply that comes so shortly before its request's end may be too late on the asker's own clock.
constexpr Duration kDeadlineMargin = std::chrono::milliseconds(2);

Op PeekOp(std::span<const std::byte> header) {
  uint16_t op = 0;
  if (header.size() == net::kFrameBytes) {
    std::memcpy(&op, header.data() + offsetof(FrameHeader, op), sizeof(op));
  }
  return static_cast<Op>(op);
}

bool IsWatched(Op op) {
  return op == Op::kPut || op == Op::kWatch || op == Op::kRegister || op == Op::kReport ||
         op == Op::kInventory;
}

// The frame, when it is one that is watched and not damaged.
std::optional<FrameHeader> Frame(const NetworkWitness::Message& message) {
  if (!IsWatched(PeekOp(message.header))) {
    return std::nullopt;
  }
  const absl::StatusOr<FrameHeader> frame = net::ParseFrame(message.header, message.body);
  return frame.ok() ? std::optional(*frame) : std::nullopt;
}

template <typename T>
T Parse(std::span<const std::byte> body) {
  T message;
  // An undamaged body of ours always parses; what is missing in another is the receiver's affair.
  message.ParsePartialFromArray(body.data(), static_cast<int>(body.size()));
  return message;
}

std::vector<BlockKey> SplitKeys(const std::string& bytes) {
  std::vector<BlockKey> keys;
  std::span<const std::byte> left = std::as_bytes(std::span(bytes));
  for (; left.size() >= BlockKey::kBytes; left = left.subspan(BlockKey::kBytes)) {
    keys.push_back(BlockKey::FromBytes(left.first<BlockKey::kBytes>()));
  }
  return keys;
}

bool IsReply(const FrameHeader& frame) {
  return (frame.flags & net::kFrameReply) != 0;
}

}  // namespace

void WireWitness::OnSent(const Message& message) {
  const std::optional<FrameHeader> frame = Frame(message);
  if (!frame) {
    return;
  }
  if (frame->op == Op::kWatch && !IsReply(*frame)) {
    OnWatchSent(message);
  } else if (frame->op == Op::kReport && !IsReply(*frame)) {
    const Duration left = std::chrono::microseconds(frame->deadline_us);
    reports_[{message.connection, frame->request_id}] = scheduler_.Now() + left - kDeadlineMargin;
  } else if (frame->op == Op::kRegister && IsReply(*frame)) {
    OnRegisterAnswered(message, *frame);
  } else if (frame->op == Op::kPut && IsReply(*frame)) {
    OnPutAnswered(message, *frame);
  }
}

void WireWitness::OnDelivered(const Message& message) {
  const std::optional<FrameHeader> frame = Frame(message);
  if (!frame) {
    return;
  }
  if (!IsReply(*frame)) {
    if (frame->op == Op::kPut) {
      OnPut(message, *frame);
    } else if (frame->op == Op::kInventory) {
      OnInventory(message);
    } else if (frame->op == Op::kRegister) {
      registers_[{message.connection, frame->request_id}] =
          Parse<proto::RegisterRequest>(message.body);
    }
    return;
  }
  if (frame->status != 0) {
    return;
  }
  if (frame->op == Op::kRegister) {
    OnRegistered(message);
  } else if (frame->op == Op::kReport) {
    OnReported(message, *frame);
  } else if (frame->op == Op::kInventory &&
             Parse<proto::InventoryReply>(message.body).send_snapshot()) {
    incomplete_.insert({&message.to, &message.from});
  }
}

void WireWitness::OnDeath(const SimHost& host) {
  for (auto it = incomplete_.begin(); it != incomplete_.end();) {
    it = it->first == &host || it->second == &host ? incomplete_.erase(it) : std::next(it);
  }
}

uint64_t WireWitness::EpochOf(const SimHost& host) const {
  const auto known = known_epochs_.find(&host);
  return known == known_epochs_.end() ? 0 : known->second;
}

// What a client or a following coordinator knows never gets older.
void WireWitness::OnWatchSent(const Message& message) {
  const uint64_t epoch = Parse<proto::WatchRequest>(message.body).known_epoch();
  uint64_t& highest = known_epochs_[&message.from];
  if (epoch < highest) {
    checker_.Violation(absl::StrCat("EPOCH FELL: ", message.from.name(), " knew ", highest,
                                    " and goes by ", epoch));
  }
  highest = std::max(highest, epoch);
}

// A holder that has admitted an incarnation admits no lower one of that name. (A follower remembers
// nobody who is no member any more; what the holder says wins.)
void WireWitness::OnRegisterAnswered(const Message& message, const FrameHeader& frame) {
  const auto asked = registers_.find({message.connection, frame.request_id});
  if (asked == registers_.end()) {
    return;
  }
  if (frame.status == 0) {
    const auto reply = Parse<proto::RegisterReply>(message.body);
    const uint64_t granted = reply.incarnation();
    const std::string& node = asked->second.node();
    uint64_t& highest = admitted_[{&message.from, node}];
    if (reply.holder() && granted < highest) {
      checker_.Violation(absl::StrCat("ZOMBIE ADMITTED: ", message.from.name(), " registers ", node,
                                      " as ", granted, " after ", highest));
    }
    highest = std::max(highest, granted);
    incarnations_raised_ += granted > asked->second.incarnation() ? 1 : 0;
  }
  registers_.erase(asked);
}

// What a node has been told to refuse, it refuses.
void WireWitness::OnPut(const Message& message, const FrameHeader& frame) {
  const auto refused = refuse_below_.find(&message.to);
  if (refused == refuse_below_.end()) {
    return;
  }
  const uint64_t placed = Parse<proto::PutRequest>(message.body).placement_epoch();
  if (placed != 0 && placed < refused->second) {
    old_puts_[{message.connection, frame.request_id}] = placed;
  }
}

void WireWitness::OnPutAnswered(const Message& message, const FrameHeader& frame) {
  const auto put = old_puts_.find({message.connection, frame.request_id});
  if (put == old_puts_.end()) {
    return;
  }
  if (frame.status == 0) {
    checker_.Violation(absl::StrCat(
        "OLD PLACEMENT: ", message.from.name(), " took a put placed by epoch ", put->second,
        " after it was told to refuse those below ", refuse_below_[&message.from]));
  } else {
    ++old_placements_refused_;
  }
  old_puts_.erase(put);
}

void WireWitness::OnInventory(const Message& message) {
  const auto batch = Parse<proto::InventoryBatch>(message.body);
  Life& life = lives_[{&message.from, &message.to}];
  if (life.incarnation != batch.incarnation()) {
    life = {batch.incarnation(), {}};
  }
  for (const BlockKey& key : SplitKeys(batch.keys())) {
    life.announced.insert(key);
  }
  snapshots_ += batch.snapshot() != 0 && batch.chunk() == 0 ? 1 : 0;
  snapshot_chunks_ += batch.snapshot() != 0 && batch.chunk() > 0 ? 1 : 0;
  if (batch.snapshot() != 0 && batch.last_chunk()) {
    incomplete_.erase({&message.from, &message.to});
  }
}

void WireWitness::OnRegistered(const Message& message) {
  const auto reply = Parse<proto::RegisterReply>(message.body);
  if (reply.holder()) {
    admitted_nodes_.insert(&message.to);
  }
  Life& life = lives_[{&message.to, &message.from}];
  if (life.incarnation != reply.incarnation()) {
    life = {reply.incarnation(), {}};
    incomplete_.insert({&message.to, &message.from});
  }
}

void WireWitness::OnReported(const Message& message, const FrameHeader& frame) {
  const auto report = reports_.find({message.connection, frame.request_id});
  if (report == reports_.end()) {
    return;
  }
  const bool in_time = scheduler_.Now() < report->second;
  reports_.erase(report);
  const auto reply = Parse<proto::ReportReply>(message.body);
  for (const proto::OrphanBatch& batch : reply.orphans()) {
    CheckNotes(message, "orphans", batch.incarnation(), batch.keys());
    orphans_told_ += batch.keys().size() / BlockKey::kBytes;
  }
  for (const proto::TouchBatch& batch : reply.touches()) {
    CheckNotes(message, "touches", batch.incarnation(), batch.keys());
    touches_told_ += batch.keys().size() / BlockKey::kBytes;
  }
  if (reply.send_snapshot()) {
    incomplete_.insert({&message.to, &message.from});
  }
  if (in_time && reply.refuse_below_epoch() != 0) {
    uint64_t& highest = refuse_below_[&message.to];
    highest = std::max(highest, reply.refuse_below_epoch());
  }
}

// What a life of a node is told about, that life has announced there.
void WireWitness::CheckNotes(const Message& message, const char* what, uint64_t incarnation,
                             const std::string& keys) {
  const Life& life = lives_[{&message.to, &message.from}];
  if (life.incarnation != incarnation) {
    return;  // About another one, which is ignored.
  }
  for (const BlockKey& key : SplitKeys(keys)) {
    if (life.announced.count(key) == 0) {
      checker_.Violation(absl::StrCat("NOTES OF ANOTHER LIFE: ", message.from.name(), " tells ",
                                      message.to.name(), " of ", what,
                                      " that this life has never announced"));
      return;
    }
  }
}

}  // namespace tokura::sim
