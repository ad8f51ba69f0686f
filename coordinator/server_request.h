#pragma once

// What the handlers of requests share: who asks, and what comes from the wire and is checked.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <google/protobuf/message_lite.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/ids.h"
#include "common/time.h"

namespace tokura::coordinator {

// Hello.role.
enum class Role : uint8_t { kClient, kNode, kCoordinator };

// INVALID_ARGUMENT: none of them.
absl::StatusOr<Role> ReadRole(const std::string& role);

// Who asks, and when.
struct Caller {
  Role role = Role::kClient;
  uint64_t connection = 0;
  TimePoint now;
};

using ReplyBody = std::unique_ptr<google::protobuf::MessageLite>;

// Parse the body of a request. INVALID_ARGUMENT: it is no such message.
absl::Status ParseRequest(std::span<const std::byte> body, google::protobuf::MessageLite* message);

// 1…`max` keys. INVALID_ARGUMENT says how many there are.
absl::StatusOr<std::vector<BlockKey>> ReadKeys(const std::string& bytes, uint32_t max);

}  // namespace tokura::coordinator
