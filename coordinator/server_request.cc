#include "coordinator/server_request.h"

#include <cstring>

#include "absl/strings/str_cat.h"

namespace tokura::coordinator {

absl::StatusOr<Role> ReadRole(const std::string& role) {
  if (role == "client") {
    return Role::kClient;
  }
  if (role == "node") {
    return Role::kNode;
  }
  if (role == "coordinator") {
    return Role::kCoordinator;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("role '", role, "': a coordinator serves client, node and coordinator"));
}

absl::Status ParseRequest(std::span<const std::byte> body, google::protobuf::MessageLite* message) {
  if (!message->ParseFromArray(body.data(), static_cast<int>(body.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the body is no ", message->GetTypeName(), " message"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<BlockKey>> ReadKeys(const std::string& bytes, uint32_t max) {
  if (bytes.empty() || bytes.size() % BlockKey::kBytes != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "keys has ", bytes.size(), " bytes, not a positive multiple of ", BlockKey::kBytes));
  }
  const size_t count = bytes.size() / BlockKey::kBytes;
  if (count > max) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys has ", count, " entries; this coordinator takes ", max));
  }
  std::vector<BlockKey> keys(count);
  static_assert(sizeof(BlockKey) == BlockKey::kBytes);
  std::memcpy(keys.data(), bytes.data(), bytes.size());
  return keys;
}

}  // namespace tokura::coordinator
