#include "cache-node/block_store_accept.h"

#include <algorithm>

namespace tokura::node {

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
  return static_cast<size_t>(std::find(codecs_.begin(), codecs_.end(), codec) - codecs_.begin());
}

bool AcceptMatcher::Accepts(const FormInfo& form) const {
  if ((form.group_mask & rule_.required_groups) != rule_.required_groups) {
    return false;
  }
  if (form.fidelity == kernels::Fidelity::kSummary && !rule_.allow_summary) {
    return false;
  }
  if (!rule_.codecs.empty() && CodecRank(form.codec) == codecs_.size()) {
    return false;
  }
  if (!rule_.max_error.has_value() || form.fidelity == kernels::Fidelity::kExact) {
    return true;
  }
  // Exact was asked for, and a lossy form whose error happens to be 0 is not that.
  const bool exact_only = !(*rule_.max_error > 0);
  return !exact_only && form.error_mean <= *rule_.max_error &&
         (!form.proxy_error || rule_.accept_proxy_error);
}

bool AcceptMatcher::Better(const FormInfo& a, const FormInfo& b) const {
  const size_t rank_a = CodecRank(a.codec);
  const size_t rank_b = CodecRank(b.codec);
  if (rank_a != rank_b) {
    return rank_a < rank_b;
  }
  if (a.fidelity != b.fidelity) {
    return a.fidelity < b.fidelity;
  }
  if (a.error_mean != b.error_mean) {
    return a.error_mean < b.error_mean;
  }
  if (a.stored_bytes != b.stored_bytes) {
    return a.stored_bytes < b.stored_bytes;
  }
  return a.content_id < b.content_id;
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
