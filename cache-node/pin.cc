#include "cache-node/pin.h"

#include <algorithm>

#include "cache-node/index.h"
#include "common/check.h"

namespace tokura::node {

FormPin& FormPin::operator=(FormPin&& other) noexcept {
  if (this != &other) {
    Reset();
    owner_ = std::exchange(other.owner_, nullptr);
    form_ = std::exchange(other.form_, nullptr);
  }
  return *this;
}

FormPin FormPin::Clone() const {
  if (form_ == nullptr) {
    return FormPin();
  }
  // This pin keeps the count above zero, so nobody can be taking the form.
  form_->word.fetch_add(1, std::memory_order_relaxed);
  return FormPin(owner_, form_);
}

void FormPin::Reset() {
  if (form_ != nullptr) {
    std::exchange(owner_, nullptr)->Unpin(*std::exchange(form_, nullptr));
  }
}

const FormInfo& FormPin::info() const {
  TOKURA_CHECK(valid());
  return form_->info;
}

const Fingerprint& FormPin::fingerprint() const {
  TOKURA_CHECK(valid());
  return form_->block->fingerprint;
}

const BlockKey& FormPin::key() const {
  TOKURA_CHECK(valid());
  return form_->block->key;
}

bool FormPin::damaged() const {
  TOKURA_CHECK(valid());
  return form_->damaged.load(std::memory_order_relaxed);
}

std::span<std::byte> FormPin::part(PartId part) const {
  TOKURA_CHECK(valid());
  const auto slot = std::lower_bound(form_->parts.begin(), form_->parts.end(), part,
                                     [](const PartSlot& a, PartId b) { return a.part < b; });
  if (slot == form_->parts.end() || slot->part != part) {
    return {};
  }
  return owner_->Payload(*slot);
}

}  // namespace tokura::node
