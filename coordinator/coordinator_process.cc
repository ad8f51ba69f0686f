#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>
#include <prometheus/registry.h>

#include "common/build_info.h"
#include "common/executor.h"
#include "common/http.h"
#include "common/log.h"
#include "common/metrics.h"
#include "common/net/channel.h"
#include "common/net/frame.h"
#include "common/net/ucx_transport.h"
#include "common/status_macros.h"
#include "coordinator/coordinator.h"
#include "kernels/part.h"

namespace tokura::coordinator {
namespace {

std::string VersionJson(const net::Transport& transport, const CoordinatorOptions& options) {
  const nlohmann::json version = {
      {"tokura", GetBuildInfo().version},  {"commit", GetBuildInfo().commit},
      {"protocol", net::kProtocolVersion}, {"format", kernels::FormatVersionString()},
      {"transport", transport.name()},     {"transport_version", transport.version()},
      {"coordinator", options.name},       {"incarnation", options.incarnation},
  };
  return version.dump();
}

class CoordinatorProcessImpl final : public CoordinatorProcess {
 public:
  CoordinatorProcessImpl() = default;
  ~CoordinatorProcessImpl() override { Shutdown(); }

  absl::Status Init(CoordinatorOptions options);
  Addresses addresses() const override { return addresses_; }
  void Shutdown() override;

 private:
  absl::Status StartAdmin(const CoordinatorOptions& options);
  absl::Status StartCoordinator(CoordinatorOptions options);
  // What the admin server asks of a coordinator that may not be there yet. Any thread.
  absl::Status Ask(absl::Status (Coordinator::*question)() const) const;

  std::shared_ptr<prometheus::Registry> registry_;  // owners: this, coordinator, admin server
  std::unique_ptr<net::UcxContext> ucx_;
  std::unique_ptr<net::UcxTransport> transport_;
  std::unique_ptr<Coordinator> coordinator_;  // made and drained on the transport's thread
  std::atomic<Coordinator*> ready_coordinator_{nullptr};
  std::thread thread_;  // the transport's
  std::unique_ptr<AdminServer> admin_;
  Addresses addresses_;
};

absl::Status CoordinatorProcessImpl::Init(CoordinatorOptions options) {
  TOKURA_RETURN_IF_ERROR(ValidateCoordinatorOptions(options));
  if (options.incarnation == 0) {
    options.incarnation = SystemClock().WallMicros();
  }
  net::SetFormatVersion(kernels::FormatVersionString());
  net::UcxContext::Options context;
  context.name = options.name;
  TOKURA_ASSIGN_OR_RETURN(ucx_, net::UcxContext::Create(context));
  net::UcxTransport::Options transport;
  transport.name = "coordinator";
  TOKURA_ASSIGN_OR_RETURN(transport_, net::UcxTransport::Create(*ucx_, transport));
  thread_ = std::thread([this] { transport_->Run(); });
  TOKURA_RETURN_IF_ERROR(StartAdmin(options));
  options.admin = addresses_.admin;  // What peers are told: the real port.
  return StartCoordinator(std::move(options));
}

absl::Status CoordinatorProcessImpl::StartAdmin(const CoordinatorOptions& options) {
  registry_ = std::make_shared<prometheus::Registry>();
  RegisterBuildInfo(*registry_, transport_->version());
  AdminServer::Options admin;
  admin.listen = options.admin;
  admin.registry = registry_;
  admin.healthy = [this] { return Ask(&Coordinator::Healthy); };
  admin.ready = [this] { return Ask(&Coordinator::Ready); };
  admin.version_json = VersionJson(*transport_, options);
  TOKURA_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
  addresses_.admin = admin_->address();
  return absl::OkStatus();
}

absl::Status CoordinatorProcessImpl::Ask(absl::Status (Coordinator::*question)() const) const {
  const Coordinator* coordinator = ready_coordinator_.load();
  return coordinator == nullptr ? absl::UnavailableError("starting") : (coordinator->*question)();
}

absl::Status CoordinatorProcessImpl::StartCoordinator(CoordinatorOptions options) {
  Coordinator::Dependencies dependencies{*transport_, SystemClock(), SystemRandom(), registry_};
  // Shared by both threads: the setter may still be inside when the waiter has gone on.
  auto promise = std::make_shared<std::promise<absl::Status>>();
  std::future<absl::Status> started = promise->get_future();
  transport_->executor().Post([this, promise, dependencies,
                               options = std::move(options)]() mutable {
    promise->set_value([&]() -> absl::Status {
      TOKURA_ASSIGN_OR_RETURN(coordinator_, Coordinator::Create(dependencies, std::move(options)));
      return coordinator_->Start();
    }());
  });
  TOKURA_RETURN_IF_ERROR(started.get());
  addresses_.data = coordinator_->address();
  ready_coordinator_.store(coordinator_.get());
  return absl::OkStatus();
}

void CoordinatorProcessImpl::Shutdown() {
  if (ready_coordinator_.load() != nullptr) {
    auto drained = std::make_shared<std::promise<void>>();  // shared as in StartCoordinator
    std::future<void> done = drained->get_future();
    transport_->executor().Post(
        [this, drained] { coordinator_->Drain([drained] { drained->set_value(); }); });
    done.wait();
  }
  admin_.reset();  // It asks the coordinator.
  ready_coordinator_.store(nullptr);
  if (thread_.joinable()) {
    transport_->Stop();
    thread_.join();
  }
  coordinator_.reset();
  transport_.reset();
  ucx_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::Start(
    CoordinatorOptions options) {
  auto process = std::make_unique<CoordinatorProcessImpl>();
  TOKURA_RETURN_IF_ERROR(process->Init(std::move(options)));
  return process;
}

}  // namespace tokura::coordinator
