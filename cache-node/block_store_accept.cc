#include "cache-node/block_store_accept.h"

#include <algorithm>

namespace tokura::node {

static_assert(static_cast<uint32_t>(kernels::Fidelity::kExact) == kWireExact);
static_assert(static_cast<uint32_t>(kernels::Fidelity::kQuantized) == kWireQuantized);
static_assert(static_cast<uint32_t>(kernels::Fidelity::kSummary) == kWireSummary);

std::optional<CodecId> CodecNames::FindLocked(std::string_view name) const {
  for (size_t i = 0; i < size_; ++i) {
    if (names_[i] == name) {
      return static_cast<CodecId>(i);
    }
  }
  return std::nullopt;
}

std::optional<CodecId> CodecNames::Find(std::string_view name) const {
  MutexLock lock(mutex_);
  return FindLocked(name);
}

std::optional<CodecId> CodecNames::Intern(std::string_view name) {
  MutexLock lock(mutex_);
  const std::optional<CodecId> known = FindLocked(name);
  if (known.has_value()) {
    return known;
  }
  if (name.empty() || name.size() > kNameBytesMax || size_ == kCodecsMax) {
    return std::nullopt;
  }
  names_[size_] = std::string(name);
  return static_cast<CodecId>(size_++);
}

size_t CodecNames::size() const {
  MutexLock lock(mutex_);
  return size_;
}

AcceptMatcher::AcceptMatcher(const AcceptRule& rule, const CodecNames& names) : rule_(rule) {
  for (const std::string& name : rule.codecs) {
    const std::optional<CodecId> codec = names.Find(name);
    if (codec.has_value()) {
      codecs_.push_back(*codec);
    }
  }
}

size_t AcceptMatcher::CodecRank(CodecId codec) const {
  const auto known = std::find(codecs_.begin(), codecs_.end(), codec);
  return known == codecs_.end() ? rule_.codecs.size()
                                : static_cast<size_t>(known - codecs_.begin());
}

bool AcceptMatcher::Accepts(const FormInfo& form) const {
  const FormTraits traits{CodecRank(form.codec), form.group_mask,
                          static_cast<uint32_t>(form.fidelity), form.proxy_error};
  return tokura::Accepts(rule_, traits, form.error_mean);
}

bool AcceptMatcher::Better(const FormInfo& a, const FormInfo& b) const {
  const auto rank = [&](const FormInfo& form) {
    return FormRank{CodecRank(form.codec), static_cast<uint32_t>(form.fidelity), form.error_mean,
                    form.stored_bytes};
  };
  const std::partial_ordering order = CompareForms(rank(a), rank(b));
  return order != 0 ? order < 0 : a.content_id < b.content_id;
}

StoredForm* AcceptMatcher::Best(StoredForm* forms, const ContentId& content, TimePoint now) const {
  StoredForm* best = nullptr;
  for (StoredForm* form = forms; form != nullptr; form = form->next) {
    if (form->expires > now && Wants(form->info, content) &&
        (best == nullptr || Better(form->info, best->info))) {
      best = form;
    }
  }
  return best;
}

}  // namespace tokura::node
