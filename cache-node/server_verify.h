#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "absl/functional/any_invocable.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/executor.h"
#include "kernels/part.h"

namespace tokura::node {

enum class LayerChecks { kAll, kNone };

// Checks one part while it arrives, a layer a step: a well-formed prefix, the identity that was
// announced, every layer's checksum. Reads no further than it was told. Thread-compatible.
class PartVerify {
 public:
  // DATA_LOSS: the bytes are not the part that was announced, or are damaged.
  using Result = absl::StatusOr<kernels::PartInfo>;
  struct Options {
    std::span<const std::byte> bytes;  // where the whole part will be; outlives the steps
    kernels::PartIdentity expected;
    LayerChecks layers = LayerChecks::kAll;
  };
  explicit PartVerify(const Options& options) : options_(options) {}

  // The first `bytes` bytes of the part are there, and do not change any more.
  void Grow(size_t bytes) { available_ = bytes; }
  size_t available() const { return available_; }
  // Do the next step. kDone: what is there has been used up or the check is over.
  Job::Progress Step();
  // Whether there is nothing more to check.
  bool over() const;
  // Once over.
  Result result() const;

 private:
  // Whether the next step has all its bytes.
  bool Ready() const;
  absl::Status Open();
  absl::Status CheckLayer();
  size_t layers() const;  // to check

  const Options options_;
  size_t available_ = 0;
  std::optional<kernels::PartReader> reader_;
  size_t layer_ = 0;  // checked
  absl::Status status_;
};

// Checks what has arrived of a part, on the worker pool. The check is handed back on an executor.
class VerifyJob final : public Job {
 public:
  using DoneCallback = absl::AnyInvocable<void(std::unique_ptr<PartVerify>)>;
  // `load`: of the request. `executor` outlives the job. `done` is destroyed without a call when
  // the pool or the executor ends first; the part's bytes stay valid while it exists.
  VerifyJob(std::unique_ptr<PartVerify> verify, Load load, Executor& executor, DoneCallback done);

  Progress Step() override;
  Load load() const override { return load_; }

 private:
  std::unique_ptr<PartVerify> verify_;
  const Load load_;
  Executor& executor_;
  DoneCallback done_;
};

}  // namespace tokura::node
