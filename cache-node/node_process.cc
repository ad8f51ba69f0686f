#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <prometheus/registry.h>

#include "absl/strings/str_cat.h"
#include "cache-node/node.h"
#include "common/build_info.h"
#include "common/executor.h"
#include "common/http.h"
#include "common/log.h"
#include "common/loop_pool.h"
#include "common/metrics.h"
#include "common/net/channel.h"
#include "common/net/frame.h"
#include "common/net/ucx_transport.h"
#include "common/status_macros.h"
#include "kernels/part.h"
#include "kernels/profile_store.h"

namespace tokura::node {
namespace {

std::string VersionJson(const net::Transport& transport, const NodeOptions& options,
                        const kernels::ProfileStore& profiles) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& profile : profiles.profiles()) {
    list.push_back(
        {{"id", kernels::ProfileIdText(profile->id())}, {"model", profile->data().model}});
  }
  const nlohmann::json version = {
      {"tokura", GetBuildInfo().version},
      {"commit", GetBuildInfo().commit},
      {"protocol", net::kProtocolVersion},
      {"format", kernels::FormatVersionString()},
      {"transport", transport.name()},
      {"transport_version", transport.version()},
      {"node", options.name},
      {"incarnation", options.incarnation},
      {"profiles", list},
  };
  // A model's name is whatever bytes its profile has.
  return version.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Run `task` on the transport's thread and wait for what it returns.
template <typename Result>
Result RunOn(net::Transport& transport, absl::AnyInvocable<Result()> task) {
  // Shared by both threads: the setter may still be inside when the waiter has gone on.
  auto promise = std::make_shared<std::promise<Result>>();
  std::future<Result> result = promise->get_future();
  transport.executor().Post(
      [promise, task = std::move(task)]() mutable { promise->set_value(task()); });
  return result.get();
}

class NodeProcessImpl final : public NodeProcess {
 public:
  NodeProcessImpl() = default;
  ~NodeProcessImpl() override { Shutdown(); }

  absl::Status Init(NodeOptions options, std::function<void()> maybe_on_failure);
  Addresses addresses() const override { return addresses_; }
  absl::Status failure() const override;
  void Shutdown() override;

 private:
  absl::Status StartTransports(const NodeOptions& options);
  absl::Status StartAdmin(const NodeOptions& options);
  absl::Status StartNode(NodeOptions options, std::function<void()> maybe_on_failure);
  // What the admin server asks of a node that may not be there yet. Any thread.
  absl::Status AskNode(absl::Status (Node::*question)() const) const;

  std::shared_ptr<const kernels::ProfileStore> profiles_;  // owners: this alone
  std::shared_ptr<prometheus::Registry> registry_;  // owners: this, the node, the admin server
  std::unique_ptr<net::UcxContext> ucx_;
  std::vector<std::unique_ptr<net::UcxTransport>> transports_;
  std::unique_ptr<Node> node_;  // made and drained on the first transport's thread
  std::atomic<Node*> ready_node_{nullptr};
  std::unique_ptr<WorkerPool> pool_;
  std::vector<std::thread> threads_;  // one per transport
  std::unique_ptr<AdminServer> admin_;
  Addresses addresses_;
};

absl::Status NodeProcessImpl::Init(NodeOptions options, std::function<void()> maybe_on_failure) {
  TOKURA_RETURN_IF_ERROR(ValidateNodeOptions(options));
  TOKURA_ASSIGN_OR_RETURN(profiles_, kernels::ProfileStore::Load(options.profiles));
  if (options.incarnation == 0) {
    options.incarnation = SystemClock().WallMicros();
  }
  net::SetFormatVersion(kernels::FormatVersionString());
  TOKURA_RETURN_IF_ERROR(StartTransports(options));
  TOKURA_RETURN_IF_ERROR(StartAdmin(options));
  options.admin = addresses_.admin;  // What clients are told: the real port.
  return StartNode(std::move(options), std::move(maybe_on_failure));
}

absl::Status NodeProcessImpl::StartTransports(const NodeOptions& options) {
  net::UcxContext::Options context;
  context.name = options.name;
  TOKURA_ASSIGN_OR_RETURN(ucx_, net::UcxContext::Create(context));
  for (int64_t i = 0; i < options.io_threads; ++i) {
    net::UcxTransport::Options transport;
    transport.name = absl::StrCat("io-", i);
    TOKURA_ASSIGN_OR_RETURN(auto made, net::UcxTransport::Create(*ucx_, transport));
    transports_.push_back(std::move(made));
  }
  std::vector<Executor*> loops;
  for (const auto& transport : transports_) {
    loops.push_back(&transport->executor());
  }
  pool_ = MakeLoopPool(loops, MakeThreadPool(static_cast<int>(options.io_threads), "verify"),
                       ProcessorsFor(loops.size()));
  for (const auto& transport : transports_) {
    threads_.emplace_back([&transport = *transport] { transport.Run(); });
  }
  return absl::OkStatus();
}

absl::Status NodeProcessImpl::StartAdmin(const NodeOptions& options) {
  registry_ = std::make_shared<prometheus::Registry>();
  RegisterBuildInfo(*registry_, transports_.front()->version());
  AdminServer::Options admin;
  admin.listen = options.admin;
  admin.registry = registry_;
  admin.healthy = [this] { return AskNode(&Node::Healthy); };
  admin.ready = [this] { return AskNode(&Node::Ready); };
  admin.version_json = VersionJson(*transports_.front(), options, *profiles_);
  TOKURA_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
  addresses_.admin = admin_->address();
  return absl::OkStatus();
}

absl::Status NodeProcessImpl::AskNode(absl::Status (Node::*question)() const) const {
  const Node* node = ready_node_.load();
  return node == nullptr ? absl::UnavailableError("starting") : (node->*question)();
}

absl::Status NodeProcessImpl::failure() const {
  const Node* node = ready_node_.load();
  return node != nullptr && node->superseded() ? node->Ready() : absl::OkStatus();
}

absl::Status NodeProcessImpl::StartNode(NodeOptions options,
                                        std::function<void()> maybe_on_failure) {
  Node::Dependencies dependencies{{}, SystemClock(), SystemRandom(), *pool_, registry_};
  dependencies.maybe_on_superseded = std::move(maybe_on_failure);
  for (const auto& transport : transports_) {
    dependencies.transports.push_back(transport.get());
  }
  // The node is created by this thread's call but on the transport's thread, as it asks.
  const absl::Status started = RunOn<absl::Status>(*transports_.front(), [&]() -> absl::Status {
    TOKURA_ASSIGN_OR_RETURN(node_, Node::Create(dependencies, std::move(options)));
    return node_->Start();
  });
  TOKURA_RETURN_IF_ERROR(started);
  addresses_.data = node_->address();
  ready_node_.store(node_.get());
  return absl::OkStatus();
}

void NodeProcessImpl::Shutdown() {
  if (ready_node_.load() != nullptr) {
    auto drained = std::make_shared<std::promise<void>>();  // shared as in RunOn
    std::future<void> done = drained->get_future();
    transports_.front()->executor().Post(
        [this, drained] { node_->Drain([drained] { drained->set_value(); }); });
    done.wait();
  }
  admin_.reset();  // It asks the node.
  ready_node_.store(nullptr);
  for (const auto& transport : transports_) {
    transport->Stop();
  }
  for (std::thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
  pool_.reset();  // Its jobs hold room in the store.
  node_.reset();
  transports_.clear();
  ucx_.reset();
}

}  // namespace

absl::StatusOr<std::unique_ptr<NodeProcess>> NodeProcess::Start(
    NodeOptions options, std::function<void()> maybe_on_failure) {
  auto process = std::make_unique<NodeProcessImpl>();
  TOKURA_RETURN_IF_ERROR(process->Init(std::move(options), std::move(maybe_on_failure)));
  return process;
}

}  // namespace tokura::node
