#pragma once

#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "common/net/ucx_api.h"
#include "common/net/ucx_transport.h"

namespace tokura::net {

// The only UcxContext. Thread-safe.
class UcxContextImpl final : public UcxContext {
 public:
  UcxContextImpl(ucp_context_h context, std::string settings)
      : context_(context), settings_(std::move(settings)) {}
  UcxContextImpl(const UcxContextImpl&) = delete;
  UcxContextImpl& operator=(const UcxContextImpl&) = delete;
  ~UcxContextImpl() override;

  std::string settings() const override { return settings_; }
  ucp_context_h handle() const { return context_; }
  // See Transport::Register.
  absl::StatusOr<std::unique_ptr<MemoryRegion>> Register(std::span<std::byte> bytes);

 private:
  const ucp_context_h context_;
  const std::string settings_;
};

// Memory known to UCX.
class UcxMemoryRegion final : public MemoryRegion {
 public:
  UcxMemoryRegion(ucp_context_h context, ucp_mem_h handle, std::span<std::byte> bytes)
      : context_(context), handle_(handle), bytes_(bytes) {}
  UcxMemoryRegion(const UcxMemoryRegion&) = delete;
  UcxMemoryRegion& operator=(const UcxMemoryRegion&) = delete;
  ~UcxMemoryRegion() override;

  std::span<std::byte> bytes() const override { return bytes_; }
  ucp_mem_h handle() const { return handle_; }

 private:
  const ucp_context_h context_;
  const ucp_mem_h handle_;
  const std::span<std::byte> bytes_;
};

// A UCX configuration with this project's settings in it; the operator's environment wins over
// each. Thread-compatible.
class UcxConfig {
 public:
  // UNAVAILABLE when UCX cannot read its configuration or does not take one of the settings.
  static absl::StatusOr<UcxConfig> Make();

  const ucp_config_t* get() const { return config_.get(); }
  // The settings in force, for the log.
  const std::string& description() const { return description_; }

 private:
  struct Release {
    void operator()(ucp_config_t* config) const { ucp_config_release(config); }
  };
  explicit UcxConfig(ucp_config_t* config) : config_(config) {}

  std::unique_ptr<ucp_config_t, Release> config_;
  std::string description_;
};

}  // namespace tokura::net
