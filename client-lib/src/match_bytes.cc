#include "client-lib/src/match_bytes.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "tokura/types.h"

namespace tokura {
namespace {

constexpr uint16_t kHasContentIds = 1;
constexpr uint16_t kHasStoredBytes = 2;
constexpr uint16_t kHasCodecs = 4;
constexpr uint16_t kKnownFlags = kHasContentIds | kHasStoredBytes | kHasCodecs;
constexpr size_t kCrcBytes = 4;
constexpr size_t kHolderBytesMin = 2 + 8 + LeaseToken::kBytes;
constexpr size_t kRunBytes = 3 * 4;

template <typename T>
void PutInt(T value, std::string* out) {
  for (size_t i = 0; i < sizeof(T); ++i) {
    out->push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
  }
}

template <typename T>
void PutId(const T& id, std::string* out) {
  out->append(reinterpret_cast<const char*>(id.bytes.data()), T::kBytes);
}

void PutName(const std::string& name, std::string* out) {
  PutInt<uint16_t>(static_cast<uint16_t>(name.size()), out);
  out->append(name);
}

void PutRuns(const std::vector<Match::Run>& runs, std::string* out) {
  PutInt<uint32_t>(static_cast<uint32_t>(runs.size()), out);
  for (const Match::Run& run : runs) {
    PutInt<uint32_t>(run.holder, out);
    PutInt<uint32_t>(run.first, out);
    PutInt<uint32_t>(run.count, out);
  }
}

void PutCodecs(const std::vector<std::string>& codecs, std::string* out) {
  std::map<std::string_view, uint16_t> number;
  std::vector<std::string_view> names;
  for (const std::string& codec : codecs) {
    if (number.try_emplace(codec, static_cast<uint16_t>(names.size())).second) {
      names.push_back(codec);
    }
  }
  PutInt<uint16_t>(static_cast<uint16_t>(names.size()), out);
  for (const std::string_view name : names) {
    PutName(std::string(name), out);
  }
  for (const std::string& codec : codecs) {
    PutInt<uint16_t>(number[codec], out);
  }
}

uint32_t CrcOf(std::string_view bytes) {
  return Crc32c(std::as_bytes(std::span(bytes)));
}

template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("match bytes: ", parts...));
}

// Reads from the front; once something was missing, everything is zero and ok() is false.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  bool ok() const { return ok_; }
  size_t left() const { return bytes_.size(); }

  std::string_view Take(size_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  T Int() {
    uint64_t value = 0;
    const std::string_view bytes = Take(sizeof(T));
    for (size_t i = 0; i < bytes.size(); ++i) {
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    }
    return static_cast<T>(value);
  }
  template <typename T>
  T TakeId() {
    T id;
    const std::string_view bytes = Take(T::kBytes);
    std::copy(bytes.begin(), bytes.end(), id.bytes.begin());
    return id;
  }
  // Whether `count` items of at least `bytes` each can follow: nothing is reserved for what is not
  // there.
  bool Fits(size_t count, size_t bytes) const { return count <= bytes_.size() / bytes; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

absl::Status ReadName(Reader& in, std::string* name) {
  const size_t length = in.Int<uint16_t>();
  if (length > kMatchNameBytesMax) {
    return Invalid("a name of ", length, " bytes");
  }
  *name = std::string(in.Take(length));
  return absl::OkStatus();
}

absl::Status ReadHolders(Reader& in, std::vector<Match::Holder>* holders) {
  const size_t count = in.Int<uint32_t>();
  if (count > kMatchHoldersMax || !in.Fits(count, kHolderBytesMin)) {
    return Invalid(count, " holders");
  }
  holders->resize(count);
  for (Match::Holder& holder : *holders) {
    TOKURA_RETURN_IF_ERROR(ReadName(in, &holder.node));
    holder.incarnation = in.Int<uint64_t>();
    holder.lease = in.TakeId<LeaseToken>();
  }
  return absl::OkStatus();
}

absl::Status ReadRuns(Reader& in, std::vector<Match::Run>* runs) {
  const size_t count = in.Int<uint32_t>();
  if (count > kMatchBlocksMax || !in.Fits(count, kRunBytes)) {
    return Invalid(count, " runs");
  }
  runs->resize(count);
  for (Match::Run& run : *runs) {
    run.holder = in.Int<uint32_t>();
    run.first = in.Int<uint32_t>();
    run.count = in.Int<uint32_t>();
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadIds(Reader& in, size_t count, std::vector<T>* ids) {
  if (count > kMatchBlocksMax || !in.Fits(count, T::kBytes)) {
    return Invalid(count, " blocks");
  }
  ids->resize(count);
  for (T& id : *ids) {
    id = in.TakeId<T>();
  }
  return absl::OkStatus();
}

absl::Status ReadCodecs(Reader& in, size_t blocks, std::vector<std::string>* codecs) {
  std::vector<std::string> names(in.Int<uint16_t>());
  for (std::string& name : names) {
    TOKURA_RETURN_IF_ERROR(ReadName(in, &name));
  }
  if (!in.Fits(blocks, sizeof(uint16_t))) {
    return Invalid("no codecs for ", blocks, " blocks");
  }
  std::vector<std::string_view> sorted(names.begin(), names.end());
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) {
    return Invalid("a codec is named twice");
  }
  codecs->reserve(blocks);
  size_t used = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t index = in.Int<uint16_t>();
    if (index >= names.size() || index > used) {
      return Invalid("codec ", index, " of block ", i);
    }
    used = std::max(used, index + 1);
    codecs->push_back(names[index]);
  }
  return used == names.size() ? absl::OkStatus() : Invalid("a codec is not used");
}

absl::Status CheckRuns(const Match& match) {
  uint64_t covered = 0;
  for (const Match::Run& run : match.runs) {
    if (run.holder >= match.holders.size() || run.first != covered || run.count == 0) {
      return Invalid("runs do not follow one another");
    }
    covered += run.count;
  }
  if (covered != match.blocks()) {
    return Invalid("runs cover ", covered, " of ", match.blocks(), " blocks");
  }
  uint32_t first = 0;
  for (const Match::Run& run : match.alternates) {
    if (run.holder >= match.holders.size() || run.first < first || run.count == 0 ||
        uint64_t{run.first} + run.count > match.blocks()) {
      return Invalid("an alternate is not part of the match");
    }
    first = run.first;
  }
  return absl::OkStatus();
}

absl::StatusOr<Match> ParseBody(Reader& in, uint16_t flags) {
  Match match;
  match.fingerprint = in.TakeId<Fingerprint>();
  match.block_tokens = in.Int<uint32_t>();
  TOKURA_RETURN_IF_ERROR(ReadHolders(in, &match.holders));
  TOKURA_RETURN_IF_ERROR(ReadRuns(in, &match.runs));
  TOKURA_RETURN_IF_ERROR(ReadRuns(in, &match.alternates));
  const size_t blocks = in.Int<uint32_t>();
  TOKURA_RETURN_IF_ERROR(ReadIds(in, blocks, &match.keys));
  if (blocks == 0 && flags != 0) {
    return Invalid("flags ", flags, " of an empty match");
  }
  if ((flags & kHasContentIds) != 0) {
    TOKURA_RETURN_IF_ERROR(ReadIds(in, blocks, &match.content_ids));
  }
  if ((flags & kHasStoredBytes) != 0) {
    if (!in.Fits(blocks, sizeof(uint64_t))) {
      return Invalid("no sizes for ", blocks, " blocks");
    }
    for (size_t i = 0; i < blocks; ++i) {
      match.stored_bytes.push_back(in.Int<uint64_t>());
    }
  }
  if ((flags & kHasCodecs) != 0) {
    TOKURA_RETURN_IF_ERROR(ReadCodecs(in, blocks, &match.codecs));
  }
  if (!in.ok() || in.left() != 0) {
    return Invalid(in.ok() ? "bytes left over" : "cut short");
  }
  TOKURA_RETURN_IF_ERROR(CheckRuns(match));
  return match;
}

}  // namespace

std::string Match::Serialize() const {
  // An empty match has no lists: they are present and empty at once.
  const auto flag = [this](size_t size, uint16_t bit) -> uint16_t {
    return !keys.empty() && size == keys.size() ? bit : 0;
  };
  const uint16_t flags = flag(content_ids.size(), kHasContentIds) |
                         flag(stored_bytes.size(), kHasStoredBytes) |
                         flag(codecs.size(), kHasCodecs);
  std::string out;
  PutInt<uint32_t>(kMatchMagic, &out);
  PutInt<uint16_t>(kMatchVersion, &out);
  PutInt<uint16_t>(flags, &out);
  PutId(fingerprint, &out);
  PutInt<uint32_t>(block_tokens, &out);
  PutInt<uint32_t>(static_cast<uint32_t>(holders.size()), &out);
  for (const Holder& holder : holders) {
    PutName(holder.node, &out);
    PutInt<uint64_t>(holder.incarnation, &out);
    PutId(holder.lease, &out);
  }
  PutRuns(runs, &out);
  PutRuns(alternates, &out);
  PutInt<uint32_t>(static_cast<uint32_t>(keys.size()), &out);
  for (const BlockKey& key : keys) {
    PutId(key, &out);
  }
  for (size_t i = 0; (flags & kHasContentIds) != 0 && i < keys.size(); ++i) {
    PutId(content_ids[i], &out);
  }
  for (size_t i = 0; (flags & kHasStoredBytes) != 0 && i < keys.size(); ++i) {
    PutInt<uint64_t>(stored_bytes[i], &out);
  }
  if ((flags & kHasCodecs) != 0) {
    PutCodecs(codecs, &out);
  }
  PutInt<uint32_t>(CrcOf(out), &out);
  return out;
}

absl::StatusOr<Match> Match::Parse(std::string_view bytes) {
  Reader head(bytes);
  const auto magic = head.Int<uint32_t>();
  const auto version = head.Int<uint16_t>();
  const auto flags = head.Int<uint16_t>();
  if (!head.ok() || magic != kMatchMagic) {
    return Invalid("these are none");
  }
  if (version != kMatchVersion) {
    return Invalid("version ", version, ", this software reads ", kMatchVersion);
  }
  if (head.left() < kCrcBytes) {
    return Invalid("cut short");
  }
  const size_t body_bytes = head.left() - kCrcBytes;
  Reader body(head.Take(body_bytes));
  if (head.Int<uint32_t>() != CrcOf(bytes.substr(0, bytes.size() - kCrcBytes))) {
    return Invalid("wrong CRC");
  }
  const auto known_flags = static_cast<uint16_t>(flags & kKnownFlags);
  if (known_flags != flags) {
    return Invalid("flags ", flags);
  }
  return ParseBody(body, flags);
}

}  // namespace tokura
