#include "common/net/ucx_context.h"

#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace tokura::net {
namespace {

void ApplyProcessSettingsOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    RedirectUcxLog();
    TurnOffMemoryHooks();
    TurnOffErrorSignals();
    TurnOffUnusedVariableWarnings();
    TurnOffMemoryTypeCache();
  });
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxContext>> UcxContext::Create(Options options) {
  if (UcxLibraryVersion() != UcxHeaderVersion()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the UCX that was loaded is ", UcxLibraryVersion(), ", but this program was built against ",
        UcxHeaderVersion(), "; look for another libucp.so in LD_PRELOAD or LD_LIBRARY_PATH"));
  }
  ApplyProcessSettingsOnce();
  TOKURA_ASSIGN_OR_RETURN(const UcxConfig config, UcxConfig::Make());
  const std::string& settings = config.description();
  ucp_params_t params = {};
  params.field_mask =
      UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 1;
  params.name = options.name.c_str();
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config.get(), &context);
  if (status != UCS_OK) {
    return absl::UnavailableError(
        absl::StrCat("UCX cannot start: ", ucs_status_string(status), "; settings: ", settings));
  }
  Log(LogLevel::kInfo, "ucx", "context_created", {{"settings", settings}});
  return std::make_unique<UcxContextImpl>(context, settings);
}

UcxContextImpl::~UcxContextImpl() {
  ucp_cleanup(context_);
}

absl::StatusOr<std::unique_ptr<MemoryRegion>> UcxContextImpl::Register(std::span<std::byte> bytes) {
  if (bytes.empty()) {
    return absl::InvalidArgumentError("cannot register an empty range of memory");
  }
  ucp_mem_map_params_t params = {};
  params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                      UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
  params.address = bytes.data();
  params.length = bytes.size();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  ucp_mem_h handle = nullptr;
  const ucs_status_t status = ucp_mem_map(context_, &params, &handle);
  if (status != UCS_OK) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot register ", bytes.size(), " bytes: ", ucs_status_string(status),
        "; RDMA needs the limit of locked memory (ulimit -l) to cover all registered memory"));
  }
  return std::make_unique<UcxMemoryRegion>(context_, handle, bytes);
}

UcxMemoryRegion::~UcxMemoryRegion() {
  const ucs_status_t status = ucp_mem_unmap(context_, handle_);
  if (status != UCS_OK) {
    Log(LogLevel::kWarn, "ucx", "unmap_failed", {{"status", ucs_status_string(status)}});
  }
}

}  // namespace tokura::net
