#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "client-lib/src/ring.h"
#include "client-lib/src/view_gate.h"
#include "common/executor.h"
#include "kernels/part.h"
#include "tokura/types.h"

namespace tokura {

// What a put shares with its encode jobs, which outlive it (shared_ptr; owners: the operation and
// its jobs). Thread-safe.
struct EncodeScope {
  explicit EncodeScope(SequenceView view) : view(std::move(view)) {}
  const SequenceView view;
  ViewGate gate;
};

// Encodes one part from the view, in steps of one layer. The view is read inside the scope's gate
// only. Thread-compatible.
class PartEncode {
 public:
  struct Request {
    kernels::PartIdentity identity;
    kernels::PartShape shape;
    uint32_t first_head = 0;  // in the view
    uint32_t first_token = 0;
    kernels::EncodeOptions options;
  };
  // `out`: PartBytesMax or more, valid until the last step.
  PartEncode(std::shared_ptr<EncodeScope> scope, Request request, std::span<std::byte> out);

  // Do the next step. kDone: status() tells how it went.
  Job::Progress Step();
  // OK; CANCELLED: the gate was closed; else what PartEncoder::Create says.
  const absl::Status& status() const { return status_; }
  // Once OK and done: the part's bytes, and the layers that fell back to raw.
  size_t bytes() const { return bytes_; }
  uint32_t raw_fallback_layers() const { return raw_fallback_layers_; }

 private:
  absl::Status Create();
  absl::Status EncodeNext();

  std::shared_ptr<EncodeScope> scope_;
  const Request request_;
  const std::span<std::byte> out_;
  std::optional<kernels::PartEncoder> encoder_;
  size_t bytes_ = 0;
  uint32_t raw_fallback_layers_ = 0;
  absl::Status status_;
};

}  // namespace tokura
