#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "common/net/transport.h"

namespace tokura::net {

// The address `text` that somebody gave for the option `name`, without dashes. INVALID_ARGUMENT
// names the option and says what is wrong.
absl::StatusOr<Address> ParseAddressOption(std::string_view name, std::string_view text);

}  // namespace tokura::net
