#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache-node/block_store.h"
#include "cache-node/index.h"
#include "common/mutex.h"

namespace tokura::node {

// Codec names of a store, interned for its life. Thread-safe.
class CodecNames {
 public:
  // Every pair of sides of some twenty presets: writers can only name codecs that exist.
  static constexpr size_t kCodecsMax = 512;
  static constexpr size_t kNameBytesMax = 64;

  CodecNames() : names_(kCodecsMax) {}

  // The id of `name`, made if need be. Nothing: the name is empty or too long, or there are too
  // many.
  std::optional<CodecId> Intern(std::string_view name);
  std::optional<CodecId> Find(std::string_view name) const;
  // `id` came from Intern.
  std::string_view Text(CodecId id) const { return names_[id]; }
  size_t size() const;

 private:
  std::optional<CodecId> FindLocked(std::string_view name) const TOKURA_REQUIRES(mutex_);

  mutable Mutex mutex_;  // a leaf
  size_t size_ TOKURA_GUARDED_BY(mutex_) = 0;
  // Never resized. A name is written once, before its id is known to anyone, and only read after.
  std::vector<std::string> names_;
};

// An AcceptRule made ready for one call. Thread-compatible.
class AcceptMatcher {
 public:
  AcceptMatcher(const AcceptRule& rule, const CodecNames& names);

  bool Accepts(const FormInfo& form) const;
  // Whether `form` is acceptable and of content `content`, unless that is empty.
  bool Wants(const FormInfo& form, const ContentId& content) const {
    return (content.empty() || form.content_id == content) && Accepts(form);
  }
  // Whether `a` is the better of two acceptable forms (AcceptRule says how).
  bool Better(const FormInfo& a, const FormInfo& b) const;
  // The best acceptable form of a list that has not expired, of content `content` unless that is
  // empty; null when none.
  StoredForm* Best(StoredForm* forms, const ContentId& content, TimePoint now) const;

 private:
  size_t CodecRank(CodecId codec) const;

  const AcceptRule& rule_;
  std::vector<CodecId> codecs_;  // known ones, best first
};

}  // namespace tokura::node
