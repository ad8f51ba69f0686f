#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "client-lib/src/layer_progress.h"
#include "client-lib/src/ring.h"
#include "client-lib/src/view_gate.h"
#include "common/executor.h"
#include "common/mutex.h"
#include "kernels/part.h"
#include "tokura/client_core.h"

namespace tokura {

// What a get shares with its decode jobs, which outlive it (shared_ptr; owners: the operation and
// its jobs). Thread-safe.
class DecodeScope {
 public:
  DecodeScope(SequenceView view, ClientPlantedBugs bugs, LayerProgress::OnLayer on_layer,
              uint32_t first_layer)
      : view(std::move(view)), bugs(bugs), progress(std::move(on_layer), first_layer) {}

  // The content of attempt `attempt` at `block` is `id`, by the first part that says so; whether
  // `id` agrees with that part. One block is never made of two writers' bits.
  bool ClaimContent(size_t block, uint32_t attempt, const ContentId& id) TOKURA_EXCLUDES(mutex_);

  const SequenceView view;
  const ClientPlantedBugs bugs;
  ViewGate gate;
  LayerProgress progress;

 private:
  struct Claim {
    uint32_t attempt;
    ContentId id;
  };
  Mutex mutex_;  // a leaf: no other lock is taken while it is held
  std::map<size_t, Claim> claims_ TOKURA_GUARDED_BY(mutex_);
};

// Verifies one part and decodes it into the view, in steps of one layer, while the part still
// arrives: it reads no further than it was told. Nothing in the payload is trusted. Every step that
// writes does so inside the scope's gate. Thread-compatible.
class PartDecode {
 public:
  struct Request {
    size_t block = 0;  // for ClaimContent
    uint32_t attempt = 0;
    size_t progress_part = 0;        // number in the scope's LayerProgress
    kernels::PartIdentity expected;  // content id empty: any
    kernels::PartShape shape;
    uint32_t first_layer = 0;  // of the part; the payload carries [first_layer, +layers)
    uint32_t layers = 0;
    uint32_t first_head = 0;  // in the view
    uint32_t first_token = 0;
    kernels::PageStores stores = kernels::PageStores::kCached;
    const kernels::ProfileSource* profiles = nullptr;  // outlives the decode
  };
  // `payload`: where the whole part will be; stays valid until the last step.
  PartDecode(std::shared_ptr<DecodeScope> scope, Request request,
             std::span<const std::byte> payload);

  // The first `bytes` bytes of the payload are there, and do not change any more.
  void Grow(size_t bytes) { available_ = bytes; }
  size_t available() const { return available_; }
  // Do the next step. kDone: what is there has been used up or the decode is over.
  Job::Progress Step();
  // Whether there is nothing more to do, however much arrives: status() tells how it went.
  bool over() const { return !status_.ok() || (reader_ && next_ == request_.layers); }
  // OK; CANCELLED: the gate was closed; DATA_LOSS: bytes, identity, shape or content are not what
  // was asked for; FAILED_PRECONDITION: another format revision; NOT_FOUND: decoding needs a model
  // profile that is not here, or not of this model: reader()->info().codec_profile.
  const absl::Status& status() const { return status_; }
  // Valid once the first step succeeded, or ended NOT_FOUND.
  const std::optional<kernels::PartReader>& reader() const { return reader_; }

 private:
  // Whether the next step has all its bytes.
  bool Ready() const;
  absl::Status Open();
  absl::Status CheckIdentity(const kernels::PartInfo& info) const;
  absl::Status DecodeNext();
  // Where a layer begins in the payload, one past the last one included.
  size_t LayerBegin(uint32_t layer) const;

  std::shared_ptr<DecodeScope> scope_;
  const Request request_;
  const std::span<const std::byte> payload_;
  size_t available_ = 0;
  std::optional<kernels::PartReader> reader_;
  uint32_t next_ = 0;  // layers decoded
  absl::Status status_;
};

}  // namespace tokura
