#pragma once

// A model profile made of small numbers by formulas that tests/golden/kernels_reference.py has too.

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/model_profile.h"
#include "kernels/part.h"

namespace tokura::kernels {

// Has what every codec needs, for any part: heads are made when they are asked for first.
class TestProfile : public ModelProfile {
 public:
  static constexpr uint64_t kId = 0x1122334455667788;
  static constexpr uint32_t kQueries = 5;

  TestProfile(uint32_t k_dim, uint32_t v_dim) : k_dim_(k_dim), v_dim_(v_dim) {}
  uint64_t id() const override { return kId; }
  // FAILED_PRECONDITION: another head size.
  absl::Status CheckPart(PartId part, const PartShape& shape, const Needs& needs) const override;
  HeadProfile Head(const ProfileSlot& slot) const override;
  Exemplars ExemplarsOf(const ProfileSlot& slot, uint32_t count) const override;

 private:
  struct Arrays;
  const Arrays& ArraysOf(const ProfileSlot& slot) const;
  uint32_t k_dim_;
  uint32_t v_dim_;
  mutable std::vector<std::shared_ptr<const Arrays>> arrays_;  // owners: this and its users
};

// Has one profile, or none.
class TestProfiles : public ProfileSource {
 public:
  TestProfiles() = default;
  TestProfiles(uint32_t k_dim, uint32_t v_dim)
      : profile_(std::make_shared<TestProfile>(k_dim, v_dim)) {}
  std::shared_ptr<const ModelProfile> Find(uint64_t id) const override {
    return id == TestProfile::kId ? profile_ : nullptr;
  }

 private:
  std::shared_ptr<const ModelProfile> profile_;  // owners: this and whoever found it
};

}  // namespace tokura::kernels
