#include "cache-node/server_verify.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace tokura::node {

VerifyJob::VerifyJob(Options options, Executor& executor, absl::AnyInvocable<void(Result)> done)
    : options_(options), executor_(executor), done_(std::move(done)) {}

absl::Status VerifyJob::Open() {
  auto reader = kernels::PartReader::Open(options_.bytes);
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

Job::Progress VerifyJob::Step() {
  if (!reader_) {
    if (absl::Status status = Open(); !status.ok()) {
      return Finish(std::move(status));
    }
  }
  const kernels::PartInfo& info = reader_->info();
  const size_t layers = info.layer_offset.size() - 1;
  if (options_.layers == LayerChecks::kAll && layer_ < layers) {
    const size_t from = info.layer_offset[layer_];
    const auto bytes = options_.bytes.subspan(from, info.layer_offset[layer_ + 1] - from);
    if (absl::Status status = reader_->VerifyLayer(layer_, bytes); !status.ok()) {
      return Finish(absl::DataLossError(status.message()));
    }
    ++layer_;
    if (layer_ < layers) {
      return Progress::kMore;
    }
  }
  return Finish(info);
}

Job::Progress VerifyJob::Finish(Result result) {
  executor_.Post(
      [done = std::move(done_), result = std::move(result)]() mutable { done(std::move(result)); });
  return Progress::kDone;
}

}  // namespace tokura::node
