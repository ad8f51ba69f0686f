#include "cli/bench_lookup_node.h"

#include <utility>

#include "common/random.h"
#include "common/status_macros.h"
#include "common/time.h"

namespace tokura::cli {
namespace {

constexpr char kAddress[] = "127.0.0.1:9";  // of nobody: nobody is sent there
constexpr uint64_t kCapacityBytes = uint64_t{1} << 40;
constexpr uint32_t kNotesMax = 4096;  // touches and orphans in one answer

absl::Status CheckTaken(const absl::Status& status, const proto::InventoryReply& reply) {
  TOKURA_RETURN_IF_ERROR(status);
  return reply.send_snapshot() ? absl::InternalError("the coordinator saw a gap in the inventory")
                               : absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<MadeNode>> MadeNode::Join(net::UcxTransport& transport,
                                                         const net::Address& coordinator,
                                                         const std::string& name) {
  std::unique_ptr<MadeNode> node(new MadeNode(transport));
  TOKURA_RETURN_IF_ERROR(node->Register(coordinator, name));
  node->Report();
  return node;
}

MadeNode::~MadeNode() {
  transport_.executor().CancelTimer(report_timer_);
  session_.reset();  // What is still unanswered ends with an error, and asks for no other report.
}

absl::Status MadeNode::Register(const net::Address& coordinator, const std::string& name) {
  TOKURA_ASSIGN_OR_RETURN(
      session_, PolledSession::Connect(transport_, coordinator, {.role = "node", .name = name}));
  std::string instance(16, '\0');
  SystemRandom().Fill(std::as_writable_bytes(std::span(instance)));
  proto::RegisterRequest request;
  request.set_node(name);
  request.set_incarnation(SystemClock().WallMicros());
  request.set_instance(instance);
  request.set_starting(true);
  request.set_address(kAddress);
  request.set_admin(kAddress);
  request.set_capacity_bytes(kCapacityBytes);
  proto::RegisterReply reply;
  TOKURA_RETURN_IF_ERROR(session_->Ask(net::Op::kRegister, request, &reply));
  proto::NodeRef ref;
  ref.set_node(name);
  ref.set_incarnation(reply.incarnation());
  inventory_ = std::make_unique<MadeInventory>(std::move(ref));
  report_interval_ = std::chrono::microseconds(reply.report_interval_us());
  return absl::OkStatus();
}

void MadeNode::ReportLater() {
  report_timer_ = transport_.executor().RunAfter(report_interval_, [this] { Report(); });
}

void MadeNode::Report() {
  proto::ReportRequest request;
  request.set_incarnation(ref().incarnation());
  request.set_batches_max(kNotesMax);
  session_->Send(net::Op::kReport, request,
                 [this](const absl::Status& status, std::span<const std::byte>) {
                   reported_.Update(status);
                   if (status.ok()) {
                     ReportLater();
                   }
                 });
}

absl::Status MadeNode::Send(const proto::InventoryBatch& batch) {
  TOKURA_RETURN_IF_ERROR(reported_);
  proto::InventoryReply reply;
  const absl::Status status = session_->Ask(net::Op::kInventory, batch, &reply);
  return CheckTaken(status, reply);
}

void MadeNode::StartSending(const std::vector<proto::InventoryBatch>& batches,
                            std::function<void(absl::Status)> done) {
  maybe_batches_ = &batches;
  sent_ = std::move(done);
  SendFrom(0);
}

void MadeNode::SendFrom(size_t index) {
  if (index == maybe_batches_->size()) {
    std::exchange(sent_, nullptr)(reported_);
    return;
  }
  session_->Send(
      net::Op::kInventory, (*maybe_batches_)[index],
      [this, index](absl::Status status, std::span<const std::byte> bytes) {
        proto::InventoryReply reply;
        if (status.ok() && !reply.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
          status = absl::InternalError("the answer cannot be read");
        }
        if (status = CheckTaken(status, reply); !status.ok()) {
          std::exchange(sent_, nullptr)(status);
          return;
        }
        SendFrom(index + 1);
      });
}

}  // namespace tokura::cli
