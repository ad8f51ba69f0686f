#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "common/net/ucx_api.h"
#include "common/net/ucx_context.h"

namespace tokura::net {
namespace {

struct Setting {
  const char* name;  // without UCX_
  const char* value;
};

constexpr Setting kSettings[] = {
    // Over TCP a rendezvous that lets the sender write into the receiver's memory, and large
    // segments, move two to four times the bytes of UCX's defaults.
    {"RNDV_SCHEME", "put_zcopy"},
    {"TCP_TX_SEG_SIZE", "64K"},
    // A restarted node listens on its port again at once.
    {"TCP_CM_REUSEADDR", "y"},
    // One rail, on the device that the connection came over. Otherwise a connection to 127.0.0.1
    // splits its payloads over lo and eth0, and one between two hosts may pick a bridge that both
    // have under the same address.
    {"MAX_RNDV_RAILS", "1"},
    {"CM_USE_ALL_DEVICES", "n"},
    // Memory is registered once, in big regions, so a cache of registrations only grows in the
    // engine's process and needs hooks in its allocator.
    {"RCACHE_ENABLE", "n"},
};

// Settings that TurnOff… of ucx_api.h makes.
constexpr Setting kProcessSettings[] = {
    {"MEM_EVENTS", "n"},
    {"MEMTYPE_CACHE", "n"},
    {"HANDLE_ERRORS", "none"},
    {"WARN_UNUSED_ENV_VARS", "n"},
};

// What operators set to choose transports and devices; named in the description when they do.
constexpr const char* kOperatorsOwn[] = {"TLS", "NET_DEVICES", "LOG_LEVEL"};

void Describe(const char* name, const char* value, std::string* description) {
  const char* maybe_operators = std::getenv(absl::StrCat("UCX_", name).c_str());
  if (maybe_operators != nullptr) {
    absl::StrAppend(description, " ", name, "=", maybe_operators, "(environment)");
  } else if (value != nullptr) {
    absl::StrAppend(description, " ", name, "=", value);
  }
}

}  // namespace

absl::StatusOr<UcxConfig> UcxConfig::Make() {
  ucp_config_t* raw = nullptr;
  ucs_status_t status = ucp_config_read(nullptr, nullptr, &raw);
  if (status != UCS_OK) {
    return absl::UnavailableError(
        absl::StrCat("UCX cannot read its configuration: ", ucs_status_string(status)));
  }
  UcxConfig config(raw);
  std::string* description = &config.description_;
  *description = absl::StrCat("UCX ", UcxLibraryVersion());
  for (const Setting& setting : kSettings) {
    Describe(setting.name, setting.value, description);
    if (OperatorSets(setting.name)) {
      continue;
    }
    status = ucp_config_modify(raw, setting.name, setting.value);
    if (status != UCS_OK) {
      return absl::UnavailableError(absl::StrCat("UCX refuses ", setting.name, "=", setting.value,
                                                 ": ", ucs_status_string(status)));
    }
  }
  for (const Setting& setting : kProcessSettings) {
    Describe(setting.name, setting.value, description);
  }
  for (const char* name : kOperatorsOwn) {
    Describe(name, nullptr, description);
  }
  return config;
}

}  // namespace tokura::net
