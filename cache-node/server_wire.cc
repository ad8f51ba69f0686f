#include "cache-node/server_wire.h"

#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/net/transport.h"

namespace tokura::node {
namespace {

// Room that a reply leaves for what surrounds the per-block fields.
constexpr size_t kReplyBytesMax = net::kMessageBytesMax - 4096;
// Bytes per block of the fields content_ids and form_of_block, and per form beside its own size.
constexpr size_t kReplyBytesPerBlock = ContentId::kBytes + 3;
constexpr size_t kReplyBytesPerForm = 8;

template <typename IdType>
std::vector<IdType> SplitIds(const std::string& bytes) {
  std::vector<IdType> ids(bytes.size() / IdType::kBytes);
  for (size_t i = 0; i < ids.size(); ++i) {
    std::memcpy(ids[i].bytes.data(), bytes.data() + i * IdType::kBytes, IdType::kBytes);
  }
  return ids;
}

template <typename IdType>
absl::StatusOr<std::vector<IdType>> ReadList(const std::string& bytes, const char* field,
                                             uint32_t max) {
  if (bytes.empty() || bytes.size() % IdType::kBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        field, " has ", bytes.size(), " bytes, not a positive multiple of ", IdType::kBytes));
  }
  if (bytes.size() / IdType::kBytes > max) {
    return absl::InvalidArgumentError(absl::StrCat(field, " has ", bytes.size() / IdType::kBytes,
                                                   " entries; this node takes ", max));
  }
  return SplitIds<IdType>(bytes);
}

}  // namespace

absl::Status ParseRequest(std::span<const std::byte> body, google::protobuf::MessageLite* message) {
  if (!message->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is no ", message->GetTypeName(), " message"));
  }
  return absl::OkStatus();
}

template <typename IdType>
absl::StatusOr<IdType> ReadId(const std::string& bytes, const char* field) {
  if (bytes.size() != IdType::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(field, " has ", bytes.size(), " bytes instead of ", IdType::kBytes));
  }
  const IdType id = SplitIds<IdType>(bytes).front();
  if (id.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(field, " is all zero"));
  }
  return id;
}

template absl::StatusOr<BlockKey> ReadId<BlockKey>(const std::string&, const char*);
template absl::StatusOr<ContentId> ReadId<ContentId>(const std::string&, const char*);
template absl::StatusOr<LeaseToken> ReadId<LeaseToken>(const std::string&, const char*);

absl::StatusOr<Fingerprint> ReadFingerprint(const std::string& bytes) {
  return ReadId<Fingerprint>(bytes, "fingerprint");
}

absl::StatusOr<std::vector<BlockKey>> ReadKeys(const std::string& bytes, uint32_t max) {
  return ReadList<BlockKey>(bytes, "keys", max);
}

absl::StatusOr<std::vector<LeaseToken>> ReadLeases(const std::string& bytes, uint32_t max) {
  return ReadList<LeaseToken>(bytes, "leases", max);
}

absl::StatusOr<std::vector<ContentId>> ReadContentIds(const std::string& bytes, size_t keys) {
  if (!bytes.empty() && bytes.size() != keys * ContentId::kBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("content_ids has ", bytes.size(), " bytes for ", keys, " keys"));
  }
  return SplitIds<ContentId>(bytes);
}

proto::Form MakeForm(const BlockStore& store, const FormInfo& info) {
  proto::Form form;
  form.set_codec(std::string(store.CodecText(info.codec)));
  form.set_group_mask(info.group_mask);
  form.set_shards(info.shards);
  form.set_stored_bytes(info.stored_bytes);
  form.set_error_mean(info.error_mean);
  form.set_error_max(info.error_max);
  form.set_proxy_error(info.proxy_error);
  form.set_fidelity(static_cast<uint32_t>(info.fidelity));
  return form;
}

bool LookupReplyBuilder::Add(const FormInfo& info) {
  const FormId id{info.codec,
                  static_cast<uint8_t>(info.fidelity),
                  info.proxy_error,
                  info.group_mask,
                  info.shards,
                  info.stored_bytes,
                  std::bit_cast<uint64_t>(info.error_mean),
                  std::bit_cast<uint64_t>(info.error_max)};
  auto it = forms_.find(id);
  size_t bytes = kReplyBytesPerBlock;
  proto::Form form;
  if (it == forms_.end()) {
    form = MakeForm(store_, info);
    bytes += form.ByteSizeLong() + kReplyBytesPerForm;
  }
  if (bytes_ + bytes > kReplyBytesMax) {
    return false;
  }
  bytes_ += bytes;
  if (it == forms_.end()) {
    it = forms_.emplace(id, static_cast<uint32_t>(reply_->forms_size())).first;
    *reply_->add_forms() = std::move(form);
  }
  reply_->add_form_of_block(it->second);
  reply_->mutable_content_ids()->append(reinterpret_cast<const char*>(info.content_id.bytes.data()),
                                        ContentId::kBytes);
  reply_->set_prefix_blocks(reply_->prefix_blocks() + 1);
  return true;
}

}  // namespace tokura::node
