#include "client-lib/src/part_encode.h"

#include "common/status_macros.h"

namespace tokura {

PartEncode::PartEncode(std::shared_ptr<EncodeScope> scope, Request request,
                       std::span<std::byte> out)
    : scope_(std::move(scope)), request_(std::move(request)), out_(out) {}

Job::Progress PartEncode::Step() {
  status_ = encoder_ ? EncodeNext() : Create();
  return status_.ok() && bytes_ == 0 ? Job::Progress::kMore : Job::Progress::kDone;
}

absl::Status PartEncode::Create() {
  const kernels::PartEncoder::Source source{
      .view = &scope_->view.groups[request_.identity.part.group],
      .first_head = request_.first_head,
      .first_token = request_.first_token};
  absl::StatusOr<kernels::PartEncoder> encoder = kernels::PartEncoder::Create(
      request_.identity, request_.shape, source, request_.options, out_);
  TOKURA_RETURN_IF_ERROR(encoder.status());
  encoder_ = std::move(*encoder);
  return absl::OkStatus();
}

absl::Status PartEncode::EncodeNext() {
  if (!scope_->gate.Enter()) {
    return absl::CancelledError("the operation has ended");
  }
  encoder_->EncodeLayer();
  scope_->gate.Leave();
  if (encoder_->done()) {
    raw_fallback_layers_ = encoder_->raw_fallback_layers();
    bytes_ = encoder_->Finish();
  }
  return absl::OkStatus();
}

}  // namespace tokura
