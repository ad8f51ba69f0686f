#pragma once

// What part encoders and readers need of a model profile. profile.* reads them from files; tests
// and benchmarks may make their own.

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "common/ids.h"
#include "kernels/exemplars.h"
#include "kernels/side_profile.h"

namespace tokura::kernels {

struct PartShape;

// One layer and KV head of one layer group of a model.
struct ProfileSlot {
  uint32_t group = 0;
  uint32_t layer = 0;  // in the group
  uint32_t head = 0;   // of the model, not of the shard
};

// Immutable and thread-safe. Two profiles with the same id are equal.
class ModelProfile {
 public:
  virtual ~ModelProfile() = default;

  // Made from the contents. Never 0.
  virtual uint64_t id() const = 0;

  // OK when every slot of such a part has a HeadProfile whose arrays have the sizes that
  // side_profile.h names. FAILED_PRECONDITION: the profile is of another model, or lacks what
  // `needs` names; the message says what.
  struct Needs {
    bool smooth = false;                // λ of K
    uint32_t k_outliers = 0;            // channels of K, as OutlierChannels says
    uint32_t v_outliers = 0;            // channels of V
    bool rounding_of_channels = false;  // SideProfile::guide of K
    bool queries = false;               // ExemplarsOf gives at least one
  };
  virtual absl::Status CheckPart(PartId part, const PartShape& shape, const Needs& needs) const = 0;

  // Borrowed from the profile. `slot` exists (CheckPart).
  virtual HeadProfile Head(const ProfileSlot& slot) const = 0;

  // At most `count` exemplar queries of the slot, the best ones that the profile has. Borrowed from
  // the profile. The same bits on every machine: guided rounding makes codes of them.
  virtual Exemplars ExemplarsOf(const ProfileSlot& slot, uint32_t count) const = 0;
};

// Where profiles are looked up. Thread-safe.
class ProfileSource {
 public:
  virtual ~ProfileSource() = default;
  // Null when there is none of this id here. Owners: the source's cache, and encoders and readers
  // for as long as they use it. Does not block on anything slower than memory.
  virtual std::shared_ptr<const ModelProfile> Find(uint64_t id) const = 0;
};

}  // namespace tokura::kernels
