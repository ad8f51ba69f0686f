#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "kernels/part.h"

namespace tokura::node {

enum class LayerChecks { kAll, kNone };

// Checks one received part on the worker pool, a layer a step: a well-formed prefix, the identity
// that was announced, every layer's checksum. The result is posted to an executor.
class VerifyJob final : public Job {
 public:
  // DATA_LOSS: the bytes are not the part that was announced, or are damaged.
  using Result = absl::StatusOr<kernels::PartInfo>;
  struct Options {
    std::span<const std::byte> bytes;  // stay valid while `done` exists
    kernels::PartIdentity expected;
    LayerChecks layers = LayerChecks::kAll;
  };
  // `executor` outlives the job. `done` is destroyed without a call when the pool or the executor
  // ends first.
  VerifyJob(Options options, Executor& executor, absl::AnyInvocable<void(Result)> done);

  Progress Step() override;

 private:
  absl::Status Open();
  Progress Finish(Result result);

  const Options options_;
  Executor& executor_;
  absl::AnyInvocable<void(Result)> done_;
  std::optional<kernels::PartReader> reader_;
  uint32_t layer_ = 0;
};

}  // namespace tokura::node
