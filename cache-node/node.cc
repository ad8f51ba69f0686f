#include "cache-node/node.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cache-node/block_store.h"
#include "cache-node/coordinator_links.h"
#include "cache-node/server_context.h"
#include "cache-node/server_loop.h"
#include "cache-node/server_maintenance.h"
#include "cache-node/server_wire.h"
#include "common/check.h"
#include "common/log.h"
#include "common/net/channel.h"
#include "common/net/protobuf_log.h"
#include "common/status_macros.h"
#include "kernels/part.h"

namespace tokura::node {
namespace {

constexpr Duration kTickMin = std::chrono::milliseconds(10);
constexpr Duration kTickMax = std::chrono::milliseconds(100);
// Longer is a mistake, and would come near to what sums of time points hold.
constexpr Duration kDurationMax = std::chrono::hours(24);
// A loop that has not ticked for so long is not healthy.
constexpr Duration kUnhealthyAfter = std::chrono::seconds(5);

// Payload bytes under way on one I/O thread. At least two of the largest parts: a peer that stopped
// in the middle of one leaves room for another's.
uint64_t TransferBytesMax(const NodeOptions& options, size_t threads) {
  const uint64_t share = options.inflight_bytes_max / threads;
  const uint64_t least = 2 * options.part_bytes_max;
  if (share >= least) {
    return share;
  }
  Log(LogLevel::kInfo, "node", "inflight_bytes_raised",
      {{"asked", options.inflight_bytes_max},
       {"used", least * threads},
       {"reason", "every I/O thread needs twice part-bytes-max"}});
  return least;
}

Duration TickOf(const NodeOptions& options) {
  return std::clamp(options.lease_age / 20, kTickMin, kTickMax);
}

// How long a drain waits for coordinators to know, as a share of drain_timeout and at most.
constexpr int kLeaveShare = 4;
constexpr Duration kLeaveMax = std::chrono::seconds(1);

class NodeImpl final : public Node, public CoordinatorLinks::Owner {
 public:
  NodeImpl(const Dependencies& dependencies, std::shared_ptr<ServerContext> context);
  ~NodeImpl() override;

  absl::Status Start() override;
  net::Address address() const override { return address_; }
  uint64_t incarnation() const override { return context_->incarnation.load(); }
  bool superseded() const override { return superseded_.load(); }
  void Drain(Task done) override;
  absl::Status Healthy() const override;
  absl::Status Ready() const override;
  Accounting accounting() const override;

 private:
  void OnAdopt(uint64_t incarnation) override;
  void OnSuperseded(const absl::Status& why) override;
  void DrainConnections(Task done);

  const std::vector<net::Transport*> transports_;
  const std::shared_ptr<ServerContext> context_;    // owners: see ServerContext
  std::vector<std::shared_ptr<ServerLoop>> loops_;  // one per transport; owners: see ServerLoop
  std::unique_ptr<net::Listener> listener_;
  net::Address address_;
  std::atomic<bool> listening_{false};
  const std::shared_ptr<CoordinatorLinks> links_;  // shared with the first loop's tick
  const std::function<void()> maybe_on_superseded_;
  absl::Status superseded_why_;  // written once, before superseded_
  std::atomic<bool> superseded_{false};
};

NodeImpl::NodeImpl(const Dependencies& dependencies, std::shared_ptr<ServerContext> context)
    : transports_(dependencies.transports),
      context_(std::move(context)),
      links_(std::make_shared<CoordinatorLinks>(context_, *transports_.front(), dependencies.random,
                                                *this)),
      maybe_on_superseded_(dependencies.maybe_on_superseded) {
  auto maintenance = std::make_shared<ServerMaintenance>(context_, transports_.front()->executor());
  ServerLoop::Options options;
  options.tick = TickOf(context_->options);
  options.transfer_bytes_max = TransferBytesMax(context_->options, transports_.size());
  std::vector<std::weak_ptr<ServerLoop>> loops;
  for (net::Transport* transport : transports_) {
    std::function<void(TimePoint)> on_tick;
    if (options.index == 0) {
      on_tick = [links = links_, maintenance](TimePoint now) {
        maintenance->Tick(now);
        links->Sample();
      };
    }
    loops_.push_back(
        std::make_shared<ServerLoop>(context_, *transport, options, std::move(on_tick)));
    loops.push_back(loops_.back());
    ++options.index;
  }
  maintenance->SetLoops(std::move(loops));
}

NodeImpl::~NodeImpl() {
  listener_.reset();
  for (const std::shared_ptr<ServerLoop>& loop : loops_) {
    loop->Abandon();
  }
}

absl::Status NodeImpl::Start() {
  std::vector<std::pair<net::Transport*, std::shared_ptr<ServerLoop>>> loops;
  for (size_t i = 0; i < transports_.size(); ++i) {
    loops.emplace_back(transports_[i], loops_[i]);
  }
  auto accept = [loops](net::Transport& owner,
                        std::unique_ptr<net::Connection> connection) -> net::ConnectionHandler* {
    for (const auto& [transport, loop] : loops) {
      if (transport == &owner) {
        return loop->Accept(std::move(connection));
      }
    }
    return nullptr;
  };
  TOKURA_ASSIGN_OR_RETURN(listener_, transports_.front()->Listen(context_->options.listen,
                                                                 transports_, std::move(accept)));
  address_ = listener_->address();
  for (const std::shared_ptr<ServerLoop>& loop : loops_) {
    loop->Start();
  }
  listening_.store(true);
  Log(LogLevel::kInfo, "node", "listening",
      {{"name", context_->options.name},
       {"address", address_.ToString()},
       {"incarnation", context_->incarnation.load()},
       {"host_bytes", context_->options.host_bytes},
       {"io_threads", transports_.size()}});
  links_->Start(address_);
  return absl::OkStatus();
}

void NodeImpl::OnAdopt(uint64_t incarnation) {
  context_->incarnation.store(incarnation);
  for (const std::shared_ptr<ServerLoop>& loop : loops_) {
    loop->EndLivesBelow(incarnation);
  }
}

void NodeImpl::OnSuperseded(const absl::Status& why) {
  Log(LogLevel::kError, "node", "superseded",
      {{"name", context_->options.name},
       {"incarnation", context_->incarnation.load()},
       {"reason", why.message()}});
  superseded_why_ = why;
  superseded_.store(true);
  context_->draining.store(true);
  listener_.reset();
  for (const std::shared_ptr<ServerLoop>& loop : loops_) {
    loop->EndLivesBelow(std::numeric_limits<uint64_t>::max());
  }
  if (maybe_on_superseded_) {
    maybe_on_superseded_();
  }
}

void NodeImpl::Drain(Task done) {
  context_->leaving.store(true);
  const Duration share = context_->options.drain_timeout / kLeaveShare;
  const TimePoint deadline =
      transports_.front()->executor().Now() + std::min<Duration>(share, kLeaveMax);
  links_->Leave(deadline, [this, done = std::move(done)]() mutable {
    DrainConnections([this, done = std::move(done)]() mutable { links_->Stop(std::move(done)); });
  });
}

void NodeImpl::DrainConnections(Task done) {
  context_->draining.store(true);
  listener_.reset();
  Log(LogLevel::kInfo, "node", "draining",
      {{"name", context_->options.name}, {"connections", context_->connections.load()}});
  Executor& home = transports_.front()->executor();
  const TimePoint deadline = home.Now() + context_->options.drain_timeout;
  // Counts the loops that are still busy; touched on the first transport's thread only. Shared by
  // the loops' callbacks.
  struct Pending {
    size_t loops = 0;
    Task done;
  };
  auto pending = std::make_shared<Pending>();
  pending->loops = loops_.size();
  pending->done = std::move(done);
  for (const std::shared_ptr<ServerLoop>& loop : loops_) {
    loop->Drain(deadline, [&home, pending] {
      home.Post([pending] {
        if (--pending->loops == 0) {
          pending->done();
        }
      });
    });
  }
}

absl::Status NodeImpl::Healthy() const {
  if (!listening_.load()) {
    return absl::UnavailableError("not started");
  }
  for (size_t i = 0; i < loops_.size(); ++i) {
    const Duration silent = context_->clock.Now() - loops_[i]->last_tick();
    if (silent > kUnhealthyAfter) {
      return absl::UnavailableError(absl::StrCat(
          "I/O thread ", i, " has not ticked for ",
          std::chrono::duration_cast<std::chrono::milliseconds>(silent).count(), " ms"));
    }
  }
  return absl::OkStatus();
}

absl::Status NodeImpl::Ready() const {
  if (superseded_.load()) {
    return superseded_why_;
  }
  if (context_->leaving.load() || context_->draining.load()) {
    return absl::UnavailableError("draining");
  }
  return Healthy();
}

Node::Accounting NodeImpl::accounting() const {
  const StoreStats stats = context_->store->stats();
  Accounting accounting;
  accounting.used_bytes = stats.used_bytes;
  accounting.pinned_forms = stats.pinned_forms;
  accounting.leases = context_->leases.stats().leases;
  accounting.blocks = stats.blocks;
  accounting.incomplete_blocks = stats.incomplete_blocks;
  accounting.connections = context_->connections.load();
  accounting.largest_free_bytes = stats.largest_free_bytes;
  accounting.orphaned_blocks = context_->store->OrphanedBlocks();
  accounting.checks = context_->check_budget.under_way();
  accounting.damaged_forms =
      context_->store->counters().evicted_forms[static_cast<size_t>(EvictReason::kDamaged)];
  return accounting;
}

absl::Status ValidateCluster(const NodeOptions& options) {
  constexpr size_t kCoordinatorsMax = 16;
  constexpr uint64_t kChangeLogMin = 16;
  constexpr uint32_t kInventoryKeysMax = 4096;  // that a coordinator takes in one batch
  constexpr uint64_t kChangeLogMax = uint64_t{1} << 26;
  if (options.coordinators.size() > kCoordinatorsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("coordinator: at most ", kCoordinatorsMax, " addresses"));
  }
  std::set<net::Address> seen;
  for (const net::Address& address : options.coordinators) {
    if (address.host.empty() || address.port == 0 || !seen.insert(address).second) {
      return absl::InvalidArgumentError(absl::StrCat("coordinator: ", address.ToString(),
                                                     " needs a host and a port, and comes once"));
    }
  }
  const auto everywhere = [](const std::string& host) { return host == "0.0.0.0" || host == "::"; };
  const std::string& advertised =
      options.advertise.host.empty() ? options.listen.host : options.advertise.host;
  if (!options.coordinators.empty() && everywhere(advertised)) {
    return absl::InvalidArgumentError(absl::StrCat("advertise: others cannot connect to ",
                                                   advertised, "; name this machine's address"));
  }
  if (options.change_log_max < kChangeLogMin || options.change_log_max > kChangeLogMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("change-log-max must be ", kChangeLogMin, " to ", kChangeLogMax));
  }
  if (options.inventory_keys_max == 0 || options.inventory_keys_max > kInventoryKeysMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("inventory_keys_max must be 1 to ", kInventoryKeysMax));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateNodeOptions(const NodeOptions& options) {
  const auto positive = [](Duration duration) { return duration > Duration::zero(); };
  if (options.name.empty() || options.name.size() > 256) {
    return absl::InvalidArgumentError("name must have 1 to 256 bytes");
  }
  if (!(options.low_watermark > 0 && options.low_watermark <= options.high_watermark &&
        options.high_watermark <= 1)) {
    return absl::InvalidArgumentError("watermarks must satisfy 0 < low <= high <= 1");
  }
  for (const Duration duration : {options.lease_age, options.lease_age_max, options.incomplete_age,
                                  options.heartbeat, options.dead_after, options.drain_timeout}) {
    if (duration < Duration::zero() || duration > kDurationMax) {
      return absl::InvalidArgumentError("durations must be 0 to 24 h");
    }
  }
  if (!positive(options.lease_age) || options.lease_age_max < options.lease_age) {
    return absl::InvalidArgumentError("lease-age must be positive and at most lease-age-max");
  }
  if (!positive(options.incomplete_age) || !positive(options.heartbeat) ||
      options.dead_after < options.heartbeat) {
    return absl::InvalidArgumentError(
        "incomplete-age and heartbeat must be positive, dead-after at least heartbeat");
  }
  if (options.part_bytes_max == 0 || options.part_bytes_max > options.host_bytes) {
    return absl::InvalidArgumentError("part-bytes-max must be positive and at most host-bytes");
  }
  // One reply names so many blocks; see LookupReplyBuilder for what does not fit.
  constexpr uint32_t kKeysMax = 32768;
  if (options.keys_max == 0 || options.keys_max > kKeysMax || options.blocks_max == 0 ||
      options.blocks_max > options.keys_max) {
    return absl::InvalidArgumentError(
        absl::StrCat("keys-max must be 1 to ", kKeysMax, ", blocks-max 1 to keys-max"));
  }
  TOKURA_RETURN_IF_ERROR(ValidateCluster(options));
  if (options.io_threads < 1 || options.io_threads > 256 || options.connections_max == 0 ||
      options.requests_max == 0 || options.inflight_bytes_max == 0) {
    return absl::InvalidArgumentError(
        "io-threads must be 1 to 256; connections, requests and inflight bytes positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Node>> Node::Create(Dependencies dependencies, NodeOptions options,
                                                   PlantedBugs bugs) {
  TOKURA_RETURN_IF_ERROR(ValidateNodeOptions(options));
  TOKURA_CHECK(!dependencies.transports.empty());
  net::RouteProtobufLog();
  StoreOptions store;
  store.host_bytes = options.host_bytes;
  store.prefault = options.prefault ? Prefault::kYes : Prefault::kNo;
  store.high_watermark = options.high_watermark;
  store.low_watermark = options.low_watermark;
  store.lease_age = options.lease_age;
  store.incomplete_age = options.incomplete_age;
  store.part_bytes_max = options.part_bytes_max;
  store.change_log_max = options.coordinators.empty() ? 0 : options.change_log_max;
  auto context =
      std::make_shared<ServerContext>(std::move(options), bugs, dependencies.clock,
                                      dependencies.random, dependencies.pool, dependencies.metrics);
  context->incarnation.store(context->options.incarnation != 0 ? context->options.incarnation
                                                               : dependencies.clock.WallMicros());
  TOKURA_ASSIGN_OR_RETURN(context->store, BlockStore::Create(store, bugs));
  TOKURA_ASSIGN_OR_RETURN(context->region,
                          dependencies.transports.front()->Register(context->store->arena()));
  return std::make_unique<NodeImpl>(dependencies, std::move(context));
}

}  // namespace tokura::node
