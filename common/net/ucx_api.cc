#include "common/net/ucx_api.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include <ucm/api/ucm.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <ucs/debug/log_def.h>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net/frame.h"

namespace tokura::net {
namespace {

constexpr uint64_t kClientMagic = 0x544b;  // "TK"

ucs_log_func_rc_t LogLine(const char* /*file*/, unsigned /*line*/, const char* function,
                          ucs_log_level_t level, const ucs_log_component_config_t* /*component*/,
                          const char* format, va_list arguments) {
  char text[512];
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(text, sizeof(text), format, copy);
  va_end(copy);
  // What UCX calls an error is a lost peer more often than not, and the status that follows it is
  // judged and logged by whoever made the call.
  const LogLevel ours = level == UCS_LOG_LEVEL_FATAL  ? LogLevel::kError
                        : level <= UCS_LOG_LEVEL_INFO ? LogLevel::kInfo
                                                      : LogLevel::kDebug;
  Log(ours, "ucx", "library_message", {{"function", function}, {"text", text}});
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

std::string UcxHeaderVersion() {
  return absl::StrCat(UCP_API_MAJOR, ".", UCP_API_MINOR);
}

std::string UcxLibraryVersion() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucp_get_version(&major, &minor, &release);
  return absl::StrCat(major, ".", minor);
}

absl::Status UcxStatus(ucs_status_t status, std::string_view what) {
  if (status == UCS_OK) {
    return absl::OkStatus();
  }
  const std::string text = absl::StrCat(std::string(what), ": ", ucs_status_string(status));
  switch (status) {
    case UCS_ERR_CANCELED:
      return absl::CancelledError(text);
    case UCS_ERR_NO_MEMORY:
    case UCS_ERR_NO_RESOURCE:
    case UCS_ERR_EXCEEDS_LIMIT:
      return absl::ResourceExhaustedError(text);
    case UCS_ERR_INVALID_PARAM:
    case UCS_ERR_INVALID_ADDR:
      return absl::InvalidArgumentError(text);
    case UCS_ERR_BUSY:
      return absl::UnavailableError(text);
    default:
      return EndpointLost(status) ? absl::UnavailableError(text) : absl::InternalError(text);
  }
}

bool EndpointLost(ucs_status_t status) {
  switch (status) {
    case UCS_ERR_CONNECTION_RESET:
    case UCS_ERR_ENDPOINT_TIMEOUT:
    case UCS_ERR_NOT_CONNECTED:
    case UCS_ERR_UNREACHABLE:
    case UCS_ERR_REJECTED:
    case UCS_ERR_CANCELED:
    case UCS_ERR_TIMED_OUT:
    case UCS_ERR_IO_ERROR:
      return true;
    default:
      return status <= UCS_ERR_FIRST_ENDPOINT_FAILURE && status >= UCS_ERR_LAST_ENDPOINT_FAILURE;
  }
}

UcxClientId UcxClientId::Local() {
  return {kClientMagic << 48 | uint64_t{kProtocolVersion} << 32 | uint64_t{UCP_API_MAJOR} << 16 |
          uint64_t{UCP_API_MINOR}};
}

std::string UcxClientId::ToString() const {
  if (value >> 48 != kClientMagic) {
    return "not a Tokura client";
  }
  return absl::StrCat("protocol ", value >> 32 & 0xffff, " over UCX ", value >> 16 & 0xffff, ".",
                      value & 0xffff);
}

std::vector<std::string> UcxLanes([[maybe_unused]] ucp_ep_h handle) {
  std::vector<std::string> lanes;
#if UCP_API_VERSION >= UCP_VERSION(1, 14)
  ucp_transport_entry_t entries[16] = {};
  ucp_ep_attr_t attributes = {};
  attributes.field_mask = UCP_EP_ATTR_FIELD_TRANSPORTS;
  attributes.transports.entries = entries;
  attributes.transports.num_entries = 16;
  attributes.transports.entry_size = sizeof(ucp_transport_entry_t);
  if (ucp_ep_query(handle, &attributes) == UCS_OK) {
    for (unsigned i = 0; i < attributes.transports.num_entries; ++i) {
      // The connection manager of a listener has no device.
      if (*entries[i].device_name != 0) {
        lanes.push_back(absl::StrCat(entries[i].transport_name, "/", entries[i].device_name));
      }
    }
  }
#endif
  return lanes;
}

bool OperatorSets(const char* name) {
  return std::getenv(absl::StrCat("UCX_", name).c_str()) != nullptr;
}

void TurnOffMemoryHooks() {
  if (OperatorSets("MEM_EVENTS")) {
    return;
  }
  // The library has read its environment when it was loaded, and installs the hooks when the first
  // component asks for memory events, which is after this.
  ucm_global_config_t options = ucm_global_opts;
  options.enable_events = 0;
  ucm_set_global_opts(&options);
}

void TurnOffErrorSignals() {
#if UCP_API_VERSION < UCP_VERSION(1, 20)
  // Older libraries take over these signals when they are loaded; newer ones leave them alone.
  if (!OperatorSets("HANDLE_ERRORS")) {
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
      ucs_debug_disable_signal(signal);
    }
  }
#endif
}

void TurnOffUnusedVariableWarnings() {
  if (!OperatorSets(UCS_GLOBAL_OPTS_WARN_UNUSED_CONFIG)) {
    ucs_global_opts_set_value(UCS_GLOBAL_OPTS_WARN_UNUSED_CONFIG, "n");
  }
}

void TurnOffMemoryTypeCache() {
  // It would need the hooks; memory types are always passed explicitly.
  if (!OperatorSets("MEMTYPE_CACHE")) {
    ucs_global_opts_set_value("MEMTYPE_CACHE", "n");
  }
}

void RedirectUcxLog() {
  ucs_log_push_handler(LogLine);
}

}  // namespace tokura::net
