#include "coordinator/metadata.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::coordinator {

void MemoryMetadataStore::Load(Loaded done) {
  Post([done = std::move(done), kept = kept_]() mutable { done(std::move(kept)); });
}

void MemoryMetadataStore::Store(uint64_t expected_epoch, Metadata next, Stored done) {
  absl::Status status;
  if (kept_.epoch == expected_epoch) {
    kept_ = std::move(next);
  } else {
    status = absl::AbortedError(
        absl::StrCat("the store is at epoch ", kept_.epoch, ", not ", expected_epoch));
  }
  Post([done = std::move(done), status = std::move(status)]() mutable { done(std::move(status)); });
}

void MemoryMetadataStore::Post(Task task) {
  executor_.Post([alive = std::weak_ptr<char>(alive_), task = std::move(task)]() mutable {
    if (!alive.expired()) {
      task();
    }
  });
}

}  // namespace tokura::coordinator
