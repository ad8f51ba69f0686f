#include "coordinator/coordinator.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/net/protobuf_log.h"
#include "common/status_macros.h"
#include "coordinator/follower.h"
#include "coordinator/membership_holder.h"
#include "coordinator/metadata.h"
#include "coordinator/policy.h"
#include "coordinator/server_context.h"
#include "coordinator/server_loop.h"
#include "coordinator/server_node_requests.h"

namespace tokura::coordinator {
namespace {

constexpr char kFollowScheme[] = "coordinator://";
// Longer is a mistake, and would come near to what sums of time points hold.
constexpr Duration kDurationMax = std::chrono::hours(24);
// A loop that has not ticked for so long is not healthy.
constexpr Duration kUnhealthyAfter = std::chrono::seconds(5);
// The answer to a LOCATE with so many keys, each a run of its own, fits one message.
constexpr uint32_t kKeysMax = 16384;

// Whom to follow; nothing when this coordinator holds membership and policy itself.
absl::StatusOr<std::optional<net::Address>> ReadMetadata(const std::string& metadata) {
  if (metadata == "memory") {
    return std::nullopt;
  }
  if (absl::StartsWith(metadata, kFollowScheme)) {
    absl::StatusOr<net::Address> address =
        net::Address::Parse(metadata.substr(sizeof(kFollowScheme) - 1));
    if (!address.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", metadata, ": ", address.status().message()));
    }
    if (address->port == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("metadata ", metadata, ": the coordinator to follow needs a port"));
    }
    return *std::move(address);
  }
  if (absl::StartsWith(metadata, "redis://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("metadata ", metadata,
                     ": this version keeps no metadata in Redis; use "
                     "memory, and coordinator://HOST:PORT on the others"));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("metadata is '", metadata, "'; it must be memory or coordinator://HOST:PORT"));
}

absl::Status ValidateDurations(const CoordinatorOptions& options) {
  for (const Duration duration :
       {options.join_ramp, options.report_interval, options.suspect_after, options.remove_after,
        options.forming, options.heartbeat, options.dead_after, options.drain_timeout}) {
    if (duration < Duration::zero() || duration > kDurationMax) {
      return absl::InvalidArgumentError("durations must be 0 to 24 h");
    }
  }
  if (options.report_interval < std::chrono::milliseconds(1) ||
      options.suspect_after < 2 * options.report_interval ||
      options.remove_after < options.suspect_after) {
    return absl::InvalidArgumentError(
        "report-interval must be at least 1 ms, suspect-after at least twice that, remove-after at "
        "least suspect-after");
  }
  if (options.heartbeat <= Duration::zero() || options.dead_after < options.heartbeat) {
    return absl::InvalidArgumentError("heartbeat must be positive, dead-after at least heartbeat");
  }
  return absl::OkStatus();
}

std::string Instance(RandomSource& random) {
  std::string instance(16, '\0');
  random.Fill(std::as_writable_bytes(std::span<char>(instance)));
  return instance;
}

// INVALID_ARGUMENT: the policy file.
absl::StatusOr<std::unique_ptr<ClusterView>> MakeView(Coordinator::Dependencies& dependencies,
                                                      const CoordinatorOptions& options,
                                                      uint64_t incarnation, PlantedBugs bugs) {
  TOKURA_ASSIGN_OR_RETURN(const std::optional<net::Address> followed,
                          ReadMetadata(options.metadata));
  if (followed.has_value()) {
    Follower::Options follower;
    follower.holder = *followed;
    follower.name = options.name;
    follower.instance = Instance(dependencies.random);
    follower.timeouts.heartbeat = options.heartbeat;
    follower.timeouts.dead_after = options.dead_after;
    return std::make_unique<Follower>(dependencies.transport, dependencies.random,
                                      std::move(follower));
  }
  MembershipHolder::Options holder;
  holder.membership.holder = options.name;
  holder.membership.life = incarnation;
  holder.membership.segment_blocks = options.segment_blocks;
  holder.membership.join_ramp = options.join_ramp;
  holder.membership.suspect_after = options.suspect_after;
  holder.membership.remove_after = options.remove_after;
  holder.membership.forming = options.forming;
  if (!options.policy_file.empty()) {
    absl::StatusOr<Policy> policy = ReadPolicyFile(options.policy_file);
    if (!policy.ok()) {
      return absl::InvalidArgumentError(absl::StrCat("policy: ", policy.status().message()));
    }
    holder.policy = *std::move(policy);
  }
  Executor& executor = dependencies.transport.executor();
  return std::make_unique<MembershipHolder>(
      executor, std::make_unique<MemoryMetadataStore>(executor), std::move(holder), bugs);
}

class CoordinatorImpl final : public Coordinator {
 public:
  CoordinatorImpl(net::Transport& transport, std::shared_ptr<ServerContext> context);
  ~CoordinatorImpl() override;

  absl::Status Start() override;
  net::Address address() const override { return address_; }
  void Drain(Task done) override;
  absl::Status Healthy() const override;
  absl::Status Ready() const override;
  Accounting accounting() const override;

 private:
  net::Transport& transport_;
  const std::shared_ptr<ServerContext> context_;  // owners: see ServerContext
  const std::shared_ptr<ServerLoop> loop_;        // owners: see ServerLoop
  std::unique_ptr<net::Listener> listener_;
  net::Address address_;
  std::atomic<bool> listening_{false};
};

// Everything goes by the view's new state from here on.
void AdoptState(ServerContext& context) {
  const uint64_t before = context.state.epoch();
  context.state = context.view->state();
  context.placement = Placement(context.state);
  context.epoch.store(context.state.epoch());
  ReviewNodes(context);
  context.watches->Changed({context.state.epoch(), context.state.policy_version()});
  Log(LogLevel::kInfo, "coordinator", "cluster_state",
      {{"epoch", context.state.epoch()},
       {"before", before},
       {"members", context.state.members_size()},
       {"choices", context.placement.choices()},
       {"policy_version", context.state.policy_version()}});
}

CoordinatorImpl::CoordinatorImpl(net::Transport& transport, std::shared_ptr<ServerContext> context)
    : transport_(transport),
      context_(std::move(context)),
      loop_(std::make_shared<ServerLoop>(context_, transport)) {
  context_->watches = std::make_shared<WatchList>(
      transport.executor(),
      [weak = std::weak_ptr(loop_)](const Watch& watch, const absl::Status& why) {
        const auto loop = weak.lock();
        if (loop == nullptr) {
          return;
        }
        if (const auto connection = loop->Find(watch.connection)) {
          connection->AnswerWatch(watch, why);
        }
      });
}

CoordinatorImpl::~CoordinatorImpl() {
  listener_.reset();
  loop_->Abandon();
}

absl::Status CoordinatorImpl::Start() {
  auto accept = [loop = loop_](net::Transport&, std::unique_ptr<net::Connection> connection) {
    return loop->Accept(std::move(connection));
  };
  TOKURA_ASSIGN_OR_RETURN(
      listener_, transport_.Listen(context_->options.listen, {&transport_}, std::move(accept)));
  address_ = listener_->address();
  context_->view->Start([weak = std::weak_ptr(context_)] {
    if (const auto context = weak.lock()) {
      AdoptState(*context);
    }
  });
  loop_->Start();
  listening_.store(true);
  Log(LogLevel::kInfo, "coordinator", "listening",
      {{"name", context_->options.name},
       {"address", address_.ToString()},
       {"incarnation", context_->incarnation},
       {"metadata", context_->options.metadata},
       {"blocks_max", context_->options.blocks_max}});
  return absl::OkStatus();
}

void CoordinatorImpl::Drain(Task done) {
  context_->draining.store(true);
  listener_.reset();
  Log(LogLevel::kInfo, "coordinator", "draining",
      {{"name", context_->options.name}, {"connections", context_->connections}});
  // The connections first: what they are still answered goes by the view's last state. Posted once
  // more at the end, because the view must not be destroyed inside its own callback. Shared by the
  // callbacks.
  Executor& executor = transport_.executor();
  auto finished = std::make_shared<Task>(std::move(done));
  loop_->Drain(executor.Now() + context_->options.drain_timeout, [&executor, context = context_,
                                                                  finished] {
    context->view->Stop([&executor, finished] { executor.Post([finished] { (*finished)(); }); });
  });
}

absl::Status CoordinatorImpl::Healthy() const {
  if (!listening_.load()) {
    return absl::UnavailableError("not started");
  }
  const Duration silent = context_->clock.Now() - TimePoint(Duration(context_->last_tick.load()));
  if (silent > kUnhealthyAfter) {
    return absl::UnavailableError(
        absl::StrCat("the thread has not ticked for ",
                     std::chrono::duration_cast<std::chrono::milliseconds>(silent).count(), " ms"));
  }
  return absl::OkStatus();
}

absl::Status CoordinatorImpl::Ready() const {
  if (context_->draining.load()) {
    return absl::UnavailableError("draining");
  }
  TOKURA_RETURN_IF_ERROR(Healthy());
  return context_->epoch.load() != 0 ? absl::OkStatus()
                                     : absl::UnavailableError("no cluster state yet");
}

Coordinator::Accounting CoordinatorImpl::accounting() const {
  const PrefixIndexStats index = context_->index->stats();
  Accounting accounting;
  accounting.epoch = context_->state.epoch();
  accounting.members = static_cast<uint64_t>(context_->state.members_size());
  accounting.blocks = index.blocks;
  accounting.forms = index.forms;
  accounting.connections = context_->connections;
  accounting.sources_dropped = index.sources_swept;
  return accounting;
}

}  // namespace

absl::Status ValidateCoordinatorOptions(const CoordinatorOptions& options) {
  if (options.name.empty() || options.name.size() > 256) {
    return absl::InvalidArgumentError("name must have 1 to 256 bytes");
  }
  TOKURA_ASSIGN_OR_RETURN(const std::optional<net::Address> followed,
                          ReadMetadata(options.metadata));
  if (followed.has_value() && !options.policy_file.empty()) {
    return absl::InvalidArgumentError(
        "policy: the rules are the holder's; give the file to the coordinator that is followed");
  }
  TOKURA_RETURN_IF_ERROR(ValidateDurations(options));
  if (options.keys_max == 0 || options.keys_max > kKeysMax) {
    return absl::InvalidArgumentError(absl::StrCat("keys-max must be 1 to ", kKeysMax));
  }
  if (options.segment_blocks == 0 || options.segment_blocks > options.keys_max) {
    return absl::InvalidArgumentError("segment-blocks must be 1 to keys-max");
  }
  if (options.replicas == 0 || options.replicas > BlockHolders::kMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("replicas must be 1 to ", size_t{BlockHolders::kMax}));
  }
  if (options.blocks_max == 0 || options.blocks_max > uint64_t{1} << 30) {
    return absl::InvalidArgumentError(absl::StrCat("blocks-max must be 1 to ", uint64_t{1} << 30));
  }
  if (options.connections_max == 0 || options.requests_max == 0) {
    return absl::InvalidArgumentError("connections-max and requests-max must be positive");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Coordinator>> Coordinator::Create(Dependencies dependencies,
                                                                 CoordinatorOptions options,
                                                                 PlantedBugs bugs) {
  TOKURA_RETURN_IF_ERROR(ValidateCoordinatorOptions(options));
  net::RouteProtobufLog();
  auto context = std::make_shared<ServerContext>(std::move(options), bugs, dependencies.clock,
                                                 dependencies.metrics);
  context->incarnation = context->options.incarnation != 0 ? context->options.incarnation
                                                           : dependencies.clock.WallMicros();
  PrefixIndexOptions index;
  index.blocks_max = context->options.blocks_max;
  index.hash_seed = dependencies.random.Next();
  TOKURA_ASSIGN_OR_RETURN(context->index, PrefixIndex::Create(index, context->nodes));
  context->inventory = std::make_unique<Inventory>(*context->index, bugs);
  TOKURA_ASSIGN_OR_RETURN(context->view,
                          MakeView(dependencies, context->options, context->incarnation, bugs));
  return std::make_unique<CoordinatorImpl>(dependencies.transport, std::move(context));
}

}  // namespace tokura::coordinator
