#include "cache-node/server_check.h"

#include <bit>
#include <string>
#include <utility>

#include "cache-node/server_connection.h"
#include "cache-node/server_wire.h"
#include "common/status_macros.h"

namespace tokura::node {
namespace {

constexpr uint32_t kGroupsMax = 8;

uint64_t BytesOf(const std::vector<FormPin>& pins) {
  uint64_t bytes = 0;
  for (const FormPin& pin : pins) {
    bytes += pin.info().stored_bytes;
  }
  return bytes;
}

}  // namespace

void RemoveDamaged(ServerContext& context, const FormPin& pin, const absl::Status& why,
                   TimePoint now) {
  if (context.bugs.keep_damaged || !context.store->RemoveDamaged(pin, now)) {
    return;
  }
  context.metrics.StoredCorruption();
  LogLimited(context.client_log, LogLevel::kWarn, "node", "stored_block_damaged",
             {{"key", ToHex(pin.key().span())},
              {"codec", std::string(context.store->CodecText(pin.info().codec))},
              {"bytes", pin.info().stored_bytes},
              {"reason", why.message()}});
}

FormsCheck::FormsCheck(std::vector<FormPin> pins, Executor& executor, DoneCallback done)
    : executor_(executor), load_(LoadOf(BytesOf(pins))) {
  findings_.done = std::move(done);
  for (FormPin& pin : pins) {
    findings_.forms.push_back({std::move(pin), absl::OkStatus()});
  }
}

void FormsCheck::OpenNext() {
  for (; form_ < findings_.forms.size(); ++form_, group_ = 0, shard_ = 0) {
    const FormPin& pin = findings_.forms[form_].pin;
    const FormInfo& info = pin.info();
    for (; group_ < kGroupsMax; ++group_, shard_ = 0) {
      if ((info.group_mask >> group_ & 1) == 0 || shard_ == info.shards) {
        continue;
      }
      const PartId part{static_cast<uint8_t>(group_), static_cast<uint8_t>(shard_++)};
      PartVerify::Options options;
      options.bytes = pin.part(part);
      options.expected = {pin.fingerprint(), pin.key(), info.content_id, part};
      verify_.emplace(options);
      verify_->Grow(options.bytes.size());
      return;
    }
  }
}

Job::Progress FormsCheck::Step() {
  if (!verify_) {
    OpenNext();
  }
  if (verify_) {
    if (verify_->Step() == Progress::kDone) {
      if (absl::Status status = verify_->result().status(); !status.ok()) {
        findings_.forms[form_++].status = std::move(status);
        group_ = shard_ = 0;
      }
      verify_.reset();
    }
    return Progress::kMore;
  }
  executor_.Post(
      [findings = std::move(findings_)]() mutable { findings.done(std::move(findings.forms)); });
  return Progress::kDone;
}

absl::StatusOr<CheckRequest::Query> CheckRequest::Read(const proto::RemoveRequest& message,
                                                       uint32_t blocks_max) {
  Query query;
  TOKURA_ASSIGN_OR_RETURN(query.fingerprint, ReadFingerprint(message.fingerprint()));
  TOKURA_ASSIGN_OR_RETURN(query.keys, ReadKeys(message.suspects(), blocks_max));
  if (!message.keys().empty()) {
    return absl::InvalidArgumentError("keys and suspects in one request");
  }
  return query;
}

CheckRequest::CheckRequest(std::shared_ptr<ServerConnection> connection,
                           const net::FrameHeader& frame, Query query)
    : ServerRequest(std::move(connection), frame), query_(std::move(query)) {}

void CheckRequest::CheckNext() {
  ServerContext& context = connection().context();
  while (!answered() && statuses_.size() < query_.keys.size()) {
    const BlockKey& key = query_.keys[statuses_.size()];
    std::vector<FormPin> pins = context.store->PinForms(query_.fingerprint, key, Now());
    if (pins.empty()) {
      Finish(absl::StatusCode::kNotFound);
      continue;
    }
    CheckBudget::Leave leave =
        context.check_budget.Take({query_.fingerprint, key}, BytesOf(pins), Now());
    if (!leave.valid()) {
      Finish(absl::StatusCode::kResourceExhausted);
      continue;
    }
    context.metrics.VerifyQueued();
    auto self = std::static_pointer_cast<CheckRequest>(shared_from_this());
    context.pool.Add(
        std::make_unique<FormsCheck>(std::move(pins), connection().executor(),
                                     [under_way = UnderWay{std::move(self), std::move(leave)}](
                                         std::vector<FormsCheck::Checked> forms) mutable {
                                       under_way.request->OnChecked(under_way, std::move(forms));
                                     }));
    return;
  }
  if (!answered()) {
    Reply(absl::OkStatus());
  }
}

// Also after the answer: damage that was found is removed all the same.
void CheckRequest::OnChecked(UnderWay& under_way, std::vector<FormsCheck::Checked> forms) {
  ServerContext& context = connection().context();
  context.metrics.VerifyEnded();
  bool damaged = false;
  for (const FormsCheck::Checked& form : forms) {
    if (!form.status.ok() || context.bugs.remove_unchecked) {
      damaged = true;
      under_way.leave.Refund(form.pin.info().stored_bytes);
      RemoveDamaged(context, form.pin, form.status, Now());
    }
  }
  forms.clear();
  under_way.leave.End();
  if (!answered()) {
    Finish(damaged ? absl::StatusCode::kOk : absl::StatusCode::kFailedPrecondition);
    CheckNext();
  }
}

void CheckRequest::Finish(absl::StatusCode status) {
  statuses_.push_back(status);
  connection().context().metrics.SuspectEnded(status);
}

void CheckRequest::GiveUp(const absl::Status& why) {
  while (statuses_.size() < query_.keys.size()) {
    Finish(why.code());
  }
  Reply(why);
}

void CheckRequest::Reply(const absl::Status& result) {
  proto::RemoveReply reply;
  for (const absl::StatusCode status : statuses_) {
    reply.mutable_statuses()->push_back(static_cast<char>(status));
  }
  Answer(result, &reply);
}

}  // namespace tokura::node
