#include "cache-node/server_verify.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/status_macros.h"

namespace tokura::node {

Job::Progress PartVerify::Step() {
  if (!reader_) {
    status_ = Open();
  } else if (!over() && Ready()) {
    status_ = CheckLayer();
  }
  return !over() && Ready() ? Job::Progress::kMore : Job::Progress::kDone;
}

bool PartVerify::over() const {
  // With the layers left unchecked the part still has to be there as a whole.
  return !status_.ok() || (reader_ && layer_ == layers() && available_ == options_.bytes.size());
}

PartVerify::Result PartVerify::result() const {
  TOKURA_CHECK(over());
  if (!status_.ok()) {
    return status_;
  }
  return reader_->info();
}

size_t PartVerify::layers() const {
  return options_.layers == LayerChecks::kAll ? reader_->info().layer_offset.size() - 1 : 0;
}

bool PartVerify::Ready() const {
  return reader_ ? layer_ < layers() && reader_->info().layer_offset[layer_ + 1] <= available_
                 : available_ == options_.bytes.size();
}

absl::Status PartVerify::Open() {
  auto reader = kernels::PartReader::Open(options_.bytes.first(available_));
  if (!reader.ok() && available_ < options_.bytes.size()) {
    return absl::OkStatus();  // The prefix may not be there as a whole: judged again with the rest.
  }
  if (!reader.ok()) {
    return absl::DataLossError(reader.status().message());
  }
  const kernels::PartInfo& info = reader->info();
  if (!(info.identity == options_.expected)) {
    return absl::DataLossError("the part's header names another block, part or content");
  }
  if (info.part_bytes != options_.bytes.size()) {
    return absl::DataLossError(absl::StrCat("the part's header says ", info.part_bytes, " bytes, ",
                                            options_.bytes.size(), " arrived"));
  }
  reader_ = std::move(*reader);
  return absl::OkStatus();
}

absl::Status PartVerify::CheckLayer() {
  if (layer_ == layers()) {
    return absl::OkStatus();
  }
  const std::vector<size_t>& offsets = reader_->info().layer_offset;
  const auto bytes = options_.bytes.subspan(offsets[layer_], offsets[layer_ + 1] - offsets[layer_]);
  if (absl::Status status = reader_->VerifyLayer(static_cast<uint32_t>(layer_), bytes);
      !status.ok()) {
    return absl::DataLossError(status.message());
  }
  ++layer_;
  return absl::OkStatus();
}

VerifyJob::VerifyJob(std::unique_ptr<PartVerify> verify, Load load, Executor& executor,
                     DoneCallback done)
    : verify_(std::move(verify)), load_(load), executor_(executor), done_(std::move(done)) {}

Job::Progress VerifyJob::Step() {
  if (verify_->Step() == Progress::kMore) {
    return Progress::kMore;
  }
  executor_.Post([done = std::move(done_), verify = std::move(verify_)]() mutable {
    done(std::move(verify));
  });
  return Progress::kDone;
}

}  // namespace tokura::node
