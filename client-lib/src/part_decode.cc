#include "client-lib/src/part_decode.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura {

bool DecodeScope::ClaimContent(size_t block, uint32_t attempt, const ContentId& id) {
  MutexLock lock(mutex_);
  const auto [claim, first] = claims_.try_emplace(block, Claim{attempt, id});
  if (!first && claim->second.attempt < attempt) {
    claim->second = {attempt, id};
  }
  return claim->second.attempt == attempt && claim->second.id == id;
}

PartDecode::PartDecode(std::shared_ptr<DecodeScope> scope, Request request,
                       std::span<const std::byte> payload)
    : scope_(std::move(scope)), request_(std::move(request)), payload_(payload) {}

Job::Progress PartDecode::Step() {
  if (!reader_) {
    status_ = Open();
  } else if (!over() && Ready()) {
    status_ = DecodeNext();
  }
  return !over() && Ready() ? Job::Progress::kMore : Job::Progress::kDone;
}

bool PartDecode::Ready() const {
  return reader_ ? LayerBegin(request_.first_layer + next_ + 1) <= available_
                 : available_ == payload_.size();
}

size_t PartDecode::LayerBegin(uint32_t layer) const {
  const kernels::PartInfo& info = reader_->info();
  return info.prefix_bytes + info.layer_offset[layer] - info.layer_offset[request_.first_layer];
}

absl::Status PartDecode::Open() {
  absl::StatusOr<kernels::PartReader> reader =
      kernels::PartReader::Open(payload_.first(available_), request_.profiles);
  if (!reader.ok() && available_ < payload_.size()) {
    return absl::OkStatus();  // The prefix may not be there as a whole: judged again with the rest.
  }
  if (!reader.ok()) {
    // A payload that is no part at all is as lost as one with a wrong checksum.
    return absl::IsFailedPrecondition(reader.status())
               ? reader.status()
               : absl::DataLossError(reader.status().message());
  }
  const kernels::PartInfo& info = reader->info();
  TOKURA_RETURN_IF_ERROR(CheckIdentity(info));
  const uint32_t end = request_.first_layer + request_.layers;
  // The payload is the prefix and, right behind it, the layers asked for: a whole part when that is
  // all of them.
  const size_t bytes =
      info.prefix_bytes + info.layer_offset[end] - info.layer_offset[request_.first_layer];
  if (payload_.size() != bytes) {
    return absl::DataLossError(absl::StrCat("payload has ", payload_.size(), " bytes, ",
                                            request_.layers, " layers take ", bytes));
  }
  if (const absl::Status decodable = reader->CheckDecodable(); !decodable.ok()) {
    reader_ = std::move(*reader);
    return absl::NotFoundError(decodable.message());
  }
  if (!scope_->ClaimContent(request_.block, request_.attempt, info.identity.content_id)) {
    return absl::DataLossError("parts of two writers under one block");
  }
  reader_ = std::move(*reader);
  return absl::OkStatus();
}

absl::Status PartDecode::CheckIdentity(const kernels::PartInfo& info) const {
  const kernels::PartIdentity& expected = request_.expected;
  if (info.identity.fingerprint != expected.fingerprint || info.identity.key != expected.key ||
      info.identity.part != expected.part) {
    return absl::DataLossError("the part belongs to another block");
  }
  if (!expected.content_id.empty() && info.identity.content_id != expected.content_id) {
    return absl::DataLossError("the part is another writer's");
  }
  if (info.shape != request_.shape) {
    return absl::DataLossError("the part has another shape than its namespace");
  }
  return absl::OkStatus();
}

absl::Status PartDecode::DecodeNext() {
  const uint32_t layer = request_.first_layer + next_;
  const size_t begin = LayerBegin(layer);
  const std::span<const std::byte> bytes = payload_.subspan(begin, LayerBegin(layer + 1) - begin);
  if (!scope_->bugs.skip_crc) {
    TOKURA_RETURN_IF_ERROR(reader_->VerifyLayer(layer, bytes));
  }
  const bool entered = scope_->gate.Enter();
  const absl::Cleanup leave = [this, entered] {
    if (entered) {
      scope_->gate.Leave();
    }
  };
  if (!entered && !scope_->bugs.write_after_deadline) {
    return absl::CancelledError("the operation has ended");
  }
  const kernels::PartReader::Target target{
      .view = &scope_->view.groups[request_.expected.part.group],
      .view_layer = layer,
      .first_head = request_.first_head,
      .first_token = request_.first_token,
      .stores = request_.stores};
  TOKURA_RETURN_IF_ERROR(reader_->DecodeLayer(layer, bytes, target));
  ++next_;
  scope_->progress.OnDecoded(request_.progress_part);
  return absl::OkStatus();
}

}  // namespace tokura
