#include "cache-node/coordinator_link.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/net/channel.h"

namespace tokura::node {
namespace {

// A coordinator that has not answered by then does not do its work.
constexpr Duration kAnswerWithin = std::chrono::seconds(2);
// Between two looks at the change log: how long a stored block waits until others can find it.
constexpr Duration kTick = std::chrono::milliseconds(20);
constexpr Duration kReportIntervalMin = std::chrono::milliseconds(10);
constexpr Duration kReportIntervalMax = std::chrono::seconds(60);

std::vector<BlockKey> KeysOf(const std::string& bytes) {
  std::vector<BlockKey> keys(
      std::min<size_t>(bytes.size() / BlockKey::kBytes, CoordinatorLink::kNotesMax));
  for (size_t i = 0; i < keys.size(); ++i) {
    std::memcpy(keys[i].bytes.data(), bytes.data() + i * BlockKey::kBytes, BlockKey::kBytes);
  }
  return keys;
}

template <typename Message>
absl::Status ParseReply(std::span<const std::byte> body, Message* reply) {
  return reply->ParseFromArray(body.data(), static_cast<int>(body.size()))
             ? absl::OkStatus()
             : absl::InternalError(
                   absl::StrCat("the coordinator's answer is no ", reply->GetTypeName()));
}

}  // namespace

// Hands an answer to the link, if it is still there and in the session that asked.
class CoordinatorLink::Answer final : public net::Call {
 public:
  Answer(std::weak_ptr<CoordinatorLink> link, uint64_t session, OnAnswer on_answer)
      : link_(std::move(link)), session_(session), on_answer_(on_answer) {}
  void OnPayload(const net::FrameHeader&, net::IncomingPayload) override {}
  void OnReply(absl::Status status, std::span<const std::byte> body) override {
    const std::shared_ptr<CoordinatorLink> link = link_.lock();
    if (link != nullptr && link->session_ == session_) {
      ((*link).*on_answer_)(status, body);
    }
  }

 private:
  const std::weak_ptr<CoordinatorLink> link_;
  const uint64_t session_;
  const OnAnswer on_answer_;
};

CoordinatorLink::CoordinatorLink(std::shared_ptr<ServerContext> context, net::Transport& transport,
                                 RandomSource& random, CoordinatorLinkOwner& owner)
    : context_(std::move(context)),
      transport_(transport),
      random_(random),
      owner_(owner),
      feed_(*context_->store, context_->options.name, context_->bugs,
            {.keys = context_->options.inventory_keys_max}) {}

CoordinatorLink::~CoordinatorLink() = default;

void CoordinatorLink::Start(const net::Address& address, std::span<const std::byte> instance) {
  net::Reconnector::Options options;
  options.address = address;
  options.channel.hello = net::MakeHello(transport_, "node", context_->options.name, instance);
  options.channel.timeouts.heartbeat = context_->options.heartbeat;
  options.channel.timeouts.dead_after = context_->options.dead_after;
  options.component = "node";
  link_ = std::make_shared<net::Reconnector>(transport_, random_, std::move(options), *this);
  link_->Start();
}

void CoordinatorLink::Stop() {
  link_->Stop();
}

absl::Status CoordinatorLink::AdmitPeer(net::Reconnector&, const proto::Welcome&) {
  return absl::OkStatus();
}

void CoordinatorLink::OnLinkUp(net::Reconnector&) {
  Register();
}

void CoordinatorLink::OnLinkDraining(net::Reconnector&) {
  End(State::kDown);
}

void CoordinatorLink::OnLinkLost(net::Reconnector&, const absl::Status&) {
  if (state_ == State::kRegistering) {
    context_->cluster_metrics.RegisterEnded(RegisterResult::kFailed);
  }
  End(State::kDown);
}

void CoordinatorLink::OnLinkStopped(net::Reconnector&) {
  End(State::kDown);
  owner_.OnStopped(*this);
}

// Forget what is under way: its answers belong to the session that ends.
void CoordinatorLink::End(State next) {
  const bool was_registered = state_ == State::kRegistered;
  state_ = next;
  ++session_;
  feed_.Lost();
  report_outstanding_ = report_again_ = false;
  transport_.executor().CancelTimer(std::exchange(timer_, 0));
  if (was_registered) {
    context_->cluster_metrics.LinkLost();
    owner_.OnLeaveSettled(*this);
  }
}

void CoordinatorLink::Ask(net::Op op, const google::protobuf::MessageLite& request,
                          OnAnswer on_answer) {
  link_->Send(op, request, transport_.executor().Now() + kAnswerWithin,
              std::make_shared<Answer>(weak_from_this(), session_, on_answer));
}

void CoordinatorLink::Reregister() {
  if (state_ != State::kDown) {
    Register();
  }
}

void CoordinatorLink::Register() {
  End(State::kRegistering);
  const proto::RegisterRequest request = owner_.Introduction();
  starting_ = request.starting();
  asked_incarnation_ = request.incarnation();
  Ask(net::Op::kRegister, request, &CoordinatorLink::OnRegistered);
}

void CoordinatorLink::Refused(const absl::Status& why) {
  if (!absl::IsNotFound(why) && !absl::IsFailedPrecondition(why)) {
    link_->Drop(why);
    return;
  }
  // It has forgotten this node, or knows a newer life: its answer to REGISTER says which. Not at
  // once, in case it forgets every time.
  End(State::kRegistering);
  timer_ = transport_.executor().RunAfter(report_interval_, [weak = weak_from_this()] {
    if (auto self = weak.lock(); self != nullptr && self->state_ == State::kRegistering) {
      self->Register();
    }
  });
}

void CoordinatorLink::OnRegistered(const absl::Status& status, std::span<const std::byte> body) {
  if (absl::IsFailedPrecondition(status) && !starting_) {
    context_->cluster_metrics.RegisterEnded(RegisterResult::kSuperseded);
    owner_.OnSuperseded(coordinator(), status);
    return;
  }
  proto::RegisterReply reply;
  absl::Status result = status.ok() ? ParseReply(body, &reply) : status;
  if (result.ok() && reply.incarnation() < asked_incarnation_) {
    result = absl::InternalError("the coordinator gave this node a lower incarnation");
  }
  if (!result.ok()) {
    link_->Drop(result);
    return;
  }
  context_->cluster_metrics.RegisterEnded(reply.incarnation() > asked_incarnation_
                                              ? RegisterResult::kAdopted
                                              : RegisterResult::kAdmitted);
  state_ = State::kRegistered;
  holder_ = reply.holder();
  context_->cluster_metrics.LinkRegistered();
  if (told_incarnation_ != reply.incarnation() || told_coordinator_ != link_->peer_incarnation()) {
    told_incarnation_ = reply.incarnation();
    told_coordinator_ = link_->peer_incarnation();
    feed_.Restart();
  }
  report_interval_ = std::clamp<Duration>(std::chrono::microseconds(reply.report_interval_us()),
                                          kReportIntervalMin, kReportIntervalMax);
  const uint64_t session = session_;
  owner_.OnEpoch(reply.epoch(), 0);
  owner_.OnAdmitted(*this, reply);
  if (session != session_) {
    return;  // It has become another life meanwhile.
  }
  Report();
  Tick();
}

void CoordinatorLink::Tick() {
  const TimePoint now = transport_.executor().Now();
  if (now >= next_report_) {
    Report();
  }
  TellInventory();
  timer_ = transport_.executor().RunAt(now + kTick, [weak = weak_from_this()] {
    if (auto self = weak.lock(); self != nullptr && self->registered()) {
      self->Tick();
    }
  });
}

void CoordinatorLink::ReportLeaving() {
  if (!registered()) {
    owner_.OnLeaveSettled(*this);
    return;
  }
  Report();
}

void CoordinatorLink::Report() {
  if (report_outstanding_) {
    report_again_ = report_again_ || owner_.leaving();
    return;
  }
  const StoreStats stats = context_->store->stats();
  proto::ReportRequest request;
  request.set_incarnation(told_incarnation_);
  request.set_highest_epoch(owner_.highest_epoch());
  request.set_leaving(owner_.leaving());
  request.set_used_bytes(stats.used_bytes);
  request.set_inflight_bytes(stats.reserved_bytes);
  request.set_batches_max(kNotesMax);
  report_outstanding_ = true;
  report_again_ = false;
  reported_leaving_ = owner_.leaving();
  next_report_ = transport_.executor().Now() + report_interval_;
  Ask(net::Op::kReport, request, &CoordinatorLink::OnReported);
}

void CoordinatorLink::OnReported(const absl::Status& status, std::span<const std::byte> body) {
  proto::ReportReply reply;
  const absl::Status result = status.ok() ? ParseReply(body, &reply) : status;
  if (!result.ok()) {
    Refused(result);
    return;
  }
  report_outstanding_ = false;
  owner_.OnEpoch(reply.epoch(), reply.refuse_below_epoch());
  // What asks during a snapshot was written before that one was complete, and is repeated if need
  // be.
  if (reply.send_snapshot() && !feed_.in_snapshot()) {
    feed_.Restart();
    TellInventory();
  }
  const bool more = TakeNotes(reply);
  // The holder knows it once it has published a membership without this node: before that, plans
  // would go on to name it, and what they place is to be taken.
  const bool left = reported_leaving_ && (!holder_ || reply.refuse_below_epoch() != 0);
  if (reported_leaving_ && !left) {
    next_report_ = transport_.executor().Now();
  }
  if (more || report_again_) {
    Report();
  }
  if (left) {
    owner_.OnLeaveSettled(*this);
  }
}

bool CoordinatorLink::TakeNotes(const proto::ReportReply& reply) {
  BlockStore& store = *context_->store;
  bool more = false;
  for (const proto::TouchBatch& batch : reply.touches()) {
    const std::vector<BlockKey> keys = KeysOf(batch.keys());
    const bool ours = batch.incarnation() == told_incarnation_;
    if (ours) {
      store.TouchKeys(keys, transport_.executor().Now());
    }
    context_->cluster_metrics.Touched(ours ? NoteLife::kThis : NoteLife::kOther, keys.size());
    more = more || keys.size() >= kNotesMax;
  }
  for (const proto::OrphanBatch& batch : reply.orphans()) {
    const std::vector<BlockKey> keys = KeysOf(batch.keys());
    const bool ours = batch.incarnation() == told_incarnation_;
    if (ours || context_->bugs.accept_old_orphans) {
      store.MarkOrphans(keys);
    }
    context_->cluster_metrics.Orphaned(ours ? NoteLife::kThis : NoteLife::kOther, keys.size());
    more = more || keys.size() >= kNotesMax;
  }
  return more;
}

void CoordinatorLink::TellInventory() {
  const uint64_t snapshots = feed_.snapshots_started();
  const auto batch = feed_.Next(told_incarnation_, transport_.executor().Now());
  if (feed_.snapshots_started() > snapshots) {
    context_->cluster_metrics.SnapshotStarted();
  }
  if (!batch.has_value()) {
    return;
  }
  batch_kind_ = batch->snapshot() > 0 ? BatchKind::kSnapshot : BatchKind::kChanges;
  batch_records_ =
      static_cast<size_t>(batch->forms_size()) + batch->removed().size() / BlockKey::kBytes;
  Ask(net::Op::kInventory, *batch, &CoordinatorLink::OnTold);
}

void CoordinatorLink::OnTold(const absl::Status& status, std::span<const std::byte> body) {
  proto::InventoryReply reply;
  const absl::Status result = status.ok() ? ParseReply(body, &reply) : status;
  if (!result.ok()) {
    Refused(result);
    return;
  }
  context_->cluster_metrics.BatchDelivered(batch_kind_, batch_records_);
  feed_.Delivered();
  if (reply.send_snapshot()) {
    feed_.Restart();
  }
  TellInventory();
}

}  // namespace tokura::node
