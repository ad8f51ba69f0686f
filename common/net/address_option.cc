#include "common/net/address_option.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace tokura::net {

absl::StatusOr<Address> ParseAddressOption(std::string_view name, std::string_view text) {
  absl::StatusOr<Address> address = Address::Parse(text);
  if (!address.ok()) {
    return absl::Status(address.status().code(),
                        absl::StrCat("--", std::string(name), ": ", address.status().message()));
  }
  return address;
}

}  // namespace tokura::net
