#include "client-lib/src/node_operations.h"

#include <algorithm>
#include <utility>

#include "proto/tokura.pb.h"

namespace tokura {
namespace {

NodeStat StatFromReply(const proto::StatReply& reply) {
  NodeStat stat;
  stat.node = reply.node();
  stat.incarnation = reply.incarnation();
  stat.blocks = reply.blocks();
  stat.forms = reply.forms();
  stat.bytes_stored = reply.bytes_stored();
  stat.bytes_logical = reply.bytes_logical();
  stat.capacity_bytes = reply.capacity_bytes();
  stat.largest_free_bytes = reply.largest_free_bytes();
  stat.pinned_bytes = reply.pinned_bytes();
  stat.leases = reply.leases();
  return stat;
}

}  // namespace

RemoveOperation::RemoveOperation(CoreContext& core, Identity identity, Request request,
                                 ClientCore::RemoveCallback done)
    : FanOut(core, std::move(identity)),
      request_(std::move(request)),
      done_(std::move(done)),
      removed_(request_.keys.size(), false),
      answers_(request_.keys.size(), 0) {}

void RemoveOperation::Start() {
  std::vector<Question> questions;
  for (NodeLink* link : request_.links) {
    const size_t step = KeysMax(*link);
    for (size_t first = 0; first < request_.keys.size(); first += step) {
      const size_t count = std::min(step, request_.keys.size() - first);
      auto body = std::make_unique<proto::RemoveRequest>();
      body->set_fingerprint(request_.ns->fingerprint().bytes.data(), Fingerprint::kBytes);
      body->set_keys(ConcatKeys(std::span(request_.keys).subspan(first, count)));
      ranges_.push_back({first, count});
      questions.push_back({link, std::move(body)});
    }
  }
  Ask(net::Op::kRemove, std::move(questions), core_.options.progress_timeout);
}

void RemoveOperation::OnAnswer(size_t question, const absl::Status& status,
                               std::span<const std::byte> body) {
  proto::RemoveReply reply;
  const Range range = ranges_[question];
  if (!status.ok() || !reply.ParseFromArray(body.data(), static_cast<int>(body.size())) ||
      reply.statuses().size() != range.count) {
    return;
  }
  for (size_t i = 0; i < range.count; ++i) {
    const auto code = static_cast<absl::StatusCode>(reply.statuses()[i]);
    removed_[range.first + i] = removed_[range.first + i] || code == absl::StatusCode::kOk;
    answers_[range.first + i] +=
        code == absl::StatusCode::kOk || code == absl::StatusCode::kNotFound ? 1 : 0;
  }
}

void RemoveOperation::Finish(const absl::Status& cause) {
  RemoveResult result;
  ResultLabel label = ResultLabel::kOk;
  for (size_t i = 0; i < request_.keys.size(); ++i) {
    absl::Status status = absl::OkStatus();
    if (cause.code() == absl::StatusCode::kCancelled) {
      status = cause;
    } else if (!removed_[i]) {
      status = answers_[i] >= request_.nodes_listed
                   ? absl::NotFoundError("no node holds the block")
                   : absl::UnavailableError("not every node answered");
    }
    if (label == ResultLabel::kOk && !status.ok()) {
      label = LabelOf(status);
    }
    result.blocks.push_back(std::move(status));
  }
  Retire(label);
  done_(std::move(result));
}

StatOperation::StatOperation(CoreContext& core, Identity identity, std::vector<Target> targets,
                             ClientCore::StatCallback done)
    : FanOut(core, std::move(identity)), targets_(std::move(targets)), done_(std::move(done)) {}

void StatOperation::Start() {
  std::vector<Question> questions;
  for (size_t i = 0; i < targets_.size(); ++i) {
    if (!targets_[i].trouble.ok()) {
      stats_.push_back(absl::UnavailableError(targets_[i].trouble.message()));
      continue;
    }
    stats_.push_back(absl::UnavailableError("no answer"));
    target_of_question_.push_back(i);
    questions.push_back({targets_[i].link, std::make_unique<proto::StatRequest>()});
  }
  Ask(net::Op::kStat, std::move(questions), core_.options.progress_timeout);
}

void StatOperation::OnAnswer(size_t question, const absl::Status& status,
                             std::span<const std::byte> body) {
  absl::StatusOr<NodeStat>& stat = stats_[target_of_question_[question]];
  proto::StatReply reply;
  if (!status.ok()) {
    stat = status;
  } else if (!reply.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    stat = absl::InternalError("the node's answer cannot be read");
  } else {
    stat = StatFromReply(reply);
  }
}

void StatOperation::Finish(const absl::Status&) {
  ResultLabel label = ResultLabel::kOk;
  for (const absl::StatusOr<NodeStat>& stat : stats_) {
    label = label == ResultLabel::kOk && !stat.ok() ? LabelOf(stat.status()) : label;
  }
  Retire(label);
  done_(std::move(stats_));
}

}  // namespace tokura
