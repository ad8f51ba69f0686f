#include "tokura/client_core.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client-lib/src/acquire_operation.h"
#include "client-lib/src/cluster_map.h"
#include "client-lib/src/coordinators.h"
#include "client-lib/src/get_operation.h"
#include "client-lib/src/introductions.h"
#include "client-lib/src/lease.h"
#include "client-lib/src/locate.h"
#include "client-lib/src/lookup_operation.h"
#include "client-lib/src/node_directory.h"
#include "client-lib/src/node_link.h"
#include "client-lib/src/node_operations.h"
#include "client-lib/src/operation.h"
#include "client-lib/src/placed_put.h"
#include "client-lib/src/put_operation.h"
#include "client-lib/src/ring.h"
#include "client-lib/src/suspects.h"
#include "common/check.h"
#include "common/log.h"
#include "common/net/protobuf_log.h"
#include "common/status_macros.h"
#include "kernels/codec.h"

namespace tokura {
namespace {

absl::Status CheckOptions(const ClientOptions& options) {
  if (options.progress_timeout <= Duration::zero()) {
    return absl::InvalidArgumentError("progress_timeout must be positive");
  }
  if (options.operations_max == 0) {
    return absl::InvalidArgumentError("operations_max must be positive");
  }
  if (options.part_bytes_max > options.ring_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("part_bytes_max ", options.part_bytes_max,
                                                   " exceeds ring_bytes ", options.ring_bytes));
  }
  if (!options.coordinators.empty() && !options.nodes.empty()) {
    return absl::InvalidArgumentError("list either coordinators or nodes");
  }
  return kernels::FindCodec(options.ingest_codec).status();
}

absl::StatusOr<std::vector<net::Address>> ParseAddresses(const std::vector<std::string>& peers) {
  std::vector<net::Address> addresses;
  for (const std::string& peer : peers) {
    TOKURA_ASSIGN_OR_RETURN(net::Address address, net::Address::Parse(peer));
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
      addresses.push_back(std::move(address));
    }
  }
  return addresses;
}

std::vector<BlockKey> KeysOf(const TokenChain& chain) {
  return {chain.keys().begin(), chain.keys().end()};
}

// What a client of a cluster has besides its links to nodes.
struct Cluster {
  Cluster(Coordinators::Environment environment, ClusterMap::Owner& owner,
          const std::vector<std::shared_ptr<NodeLink>>& links,
          const std::map<std::string, uint64_t>& incarnations)
      : coordinators(environment),
        map(coordinators, owner),
        introductions({environment.executor, coordinators, map, links, incarnations}),
        context{coordinators, map, introductions} {}
  Coordinators coordinators;
  ClusterMap map;
  Introductions introductions;
  ClusterContext context;
};

class ClientCoreImpl final : public ClientCore, public NodeLink::Owner, public ClusterMap::Owner {
 public:
  // What is made before the core, because it can fail.
  struct Made {
    std::unique_ptr<Ring> ring;
    std::shared_ptr<const kernels::ProfileStore> profiles;
  };
  ClientCoreImpl(Dependencies dependencies, ClientOptions options, ClientPlantedBugs bugs,
                 Made made);
  ~ClientCoreImpl() override;
  // Connect to what the options list. INVALID_ARGUMENT: an address.
  absl::Status Connect();

  OperationId Lookup(NamespaceRef ns, const TokenChain& chain, LookupOptions options,
                     LookupCallback done) override;
  OperationId Acquire(NamespaceRef ns, const Match& match, AcceptOptions accept,
                      LookupCallback done) override;
  void Renew(const Match& held) override;
  void Release(const Match& held) override;
  OperationId Get(NamespaceRef ns, const Match& match, SequenceView view, GetOptions options,
                  GetCallback done) override;
  OperationId Put(NamespaceRef ns, const TokenChain& chain, SequenceView view, PutOptions options,
                  Task released, PutCallback stored) override;
  OperationId Remove(NamespaceRef ns, std::vector<BlockKey> keys, RemoveCallback done) override;
  OperationId Stat(StatCallback done) override;
  void Cancel(OperationId id) override;
  absl::Status SetNodes(const std::vector<std::string>& nodes) override;
  bool ready() const override;
  void WhenReady(TimePoint deadline, absl::AnyInvocable<void(absl::Status)> done) override;
  void Shutdown(Task done) override;

 private:
  struct ReadyWaiter {
    absl::AnyInvocable<void(absl::Status)> done;
    TimerId timer = 0;
  };

  absl::Status AdmitNode(NodeLink& link, const proto::Welcome& welcome) override;
  uint64_t FencedBelow(const std::string& node) const override;
  void OnLinkUp(NodeLink& link) override;
  void OnLinkDraining(NodeLink& link, const absl::Status& why) override;
  void OnLinkLost(NodeLink& link, const absl::Status& why) override;
  void OnLinkStopped(NodeLink& link) override;
  void OnLinkFailed(NodeLink& link) override;

  void OnClusterState(const proto::ClusterState& state) override;

  void SetLinks(const std::vector<net::Address>& addresses);
  std::shared_ptr<NodeLink> MakeLink(const net::Address& address, PeerKind peer);
  // Nobody below `incarnation` speaks for `node` any more; `maybe_newest` does.
  void Fence(const std::string& node, uint64_t incarnation, const NodeLink* maybe_newest);
  // OK, or why no operation may start now.
  absl::Status Admit() const;
  template <typename T, typename... Args>
  OperationId StartOperation(OperationKind kind, Args&&... args);
  // Answer a refused operation, not inline.
  OperationId Refuse(OperationKind kind, const absl::Status& why, Task answer);
  ContentId NewContentId();
  // Call `tell` with every operation under way; callbacks start and end operations meanwhile.
  template <typename F>
  void TellOperations(F&& tell);
  absl::Status DescribeTrouble() const;
  // Whether nothing is to come soon that would make this client see more: in a cluster every member
  // that is up has been connected to, or has failed.
  bool settled() const;
  // Links or members are others than before: tell those who wait for some.
  void TellOfChange();
  // Answer everyone who waits now; callbacks that wait again are not answered.
  void AnswerReadyWaiters(const absl::Status& status);
  void FinishShutdown();

  Executor& executor_;
  net::Transport& transport_;
  RandomSource& random_;
  const ClientOptions options_;
  const ClientPlantedBugs bugs_;
  ClientMetrics metrics_;
  ModelProfiles profiles_;
  std::unique_ptr<Ring> ring_;
  CodecLoad codec_;
  PauseWatch pauses_;
  Suspects suspects_;
  std::array<std::byte, 16> instance_;
  uint64_t puts_ = 0;
  std::vector<std::shared_ptr<NodeLink>> links_;    // listed; owners: this, calls and posted tasks
  std::vector<std::shared_ptr<NodeLink>> retired_;  // no longer listed, still closing
  std::map<std::string, uint64_t> incarnations_;    // the highest seen, by node name
  std::unique_ptr<Cluster> maybe_cluster_;          // null: the nodes are listed
  std::set<net::Address> up_members_;               // of a cluster
  std::unique_ptr<NodeDirectory> directory_;
  CoreContext context_;
  std::map<OperationId, std::shared_ptr<Operation>> operations_;
  std::map<uint64_t, ReadyWaiter> ready_waiters_;
  OperationId next_id_ = 1;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // posted tasks hold it weakly
  Task shutdown_done_;
  bool shutting_down_ = false;
};

ClientCoreImpl::ClientCoreImpl(Dependencies dependencies, ClientOptions options,
                               ClientPlantedBugs bugs, Made made)
    : executor_(dependencies.transport.executor()),
      transport_(dependencies.transport),
      random_(dependencies.random),
      options_(std::move(options)),
      bugs_(bugs),
      metrics_(std::move(dependencies.metrics)),
      profiles_(std::move(made.profiles), metrics_),
      ring_(std::move(made.ring)),
      suspects_(executor_, metrics_, options_.progress_timeout),
      maybe_cluster_(options_.coordinators.empty()
                         ? nullptr
                         : std::make_unique<Cluster>(
                               Coordinators::Environment{executor_, metrics_, pauses_, options_},
                               *this, links_, incarnations_)),
      directory_(maybe_cluster_
                     ? std::unique_ptr<NodeDirectory>(std::make_unique<ClusterDirectory>(links_))
                     : std::make_unique<StaticDirectory>(links_)),
      context_{executor_, dependencies.pool,
               options_,  bugs_,
               *ring_,    *directory_,
               metrics_,  profiles_,
               codec_,    pauses_,
               suspects_, maybe_cluster_ ? &maybe_cluster_->context : nullptr} {
  random_.Fill(instance_);
  ring_->SetGauges({metrics_.ring_used_bytes, metrics_.ring_waiters});
  ring_->SetOnIdle([this] { FinishShutdown(); });
  metrics_.ring_capacity_bytes->Increment(static_cast<double>(ring_->capacity()));
}

absl::Status ClientCoreImpl::Connect() {
  if (!maybe_cluster_) {
    return SetNodes(options_.nodes);
  }
  TOKURA_ASSIGN_OR_RETURN(const std::vector<net::Address> addresses,
                          ParseAddresses(options_.coordinators));
  metrics_.RegisterCluster();
  std::vector<std::shared_ptr<NodeLink>> links;
  for (const net::Address& address : addresses) {
    links.push_back(MakeLink(address, PeerKind::kCoordinator));
  }
  maybe_cluster_->coordinators.Start(std::move(links), maybe_cluster_->map);
  return absl::OkStatus();
}

ClientCoreImpl::~ClientCoreImpl() {
  TOKURA_CHECK(operations_.empty() && links_.empty() && retired_.empty());
  metrics_.ring_capacity_bytes->Decrement(static_cast<double>(ring_->capacity()));
}

template <typename T, typename... Args>
ClientCore::OperationId ClientCoreImpl::StartOperation(OperationKind kind, Args&&... args) {
  const OperationId id = next_id_++;
  Operation::Identity identity{.id = id, .kind = kind, .on_retired = [this](uint64_t retired) {
                                 operations_.erase(retired);
                                 FinishShutdown();
                               }};
  auto operation = std::make_shared<T>(context_, std::move(identity), std::forward<Args>(args)...);
  operations_.emplace(id, operation);
  operation->Start();
  return id;
}

absl::Status ClientCoreImpl::Admit() const {
  TOKURA_DCHECK(executor_.IsCurrent());
  if (shutting_down_) {
    return absl::CancelledError("the client is shutting down");
  }
  if (operations_.size() >= options_.operations_max) {
    metrics_.operations_rejected->Increment();
    return absl::ResourceExhaustedError(
        absl::StrCat("operations_max ", options_.operations_max, " are under way"));
  }
  return absl::OkStatus();
}

ClientCore::OperationId ClientCoreImpl::Refuse(OperationKind kind, const absl::Status& why,
                                               Task answer) {
  metrics_.OperationStarted();
  metrics_.OperationEnded(kind, LabelOf(why), Duration::zero());
  executor_.Post(std::move(answer));
  return next_id_++;
}

ClientCore::OperationId ClientCoreImpl::Lookup(NamespaceRef ns, const TokenChain& chain,
                                               LookupOptions options, LookupCallback done) {
  absl::Status admitted = Admit();
  if (admitted.ok() && (chain.fingerprint() != ns->fingerprint() ||
                        chain.block_tokens() != ns->spec().block_tokens)) {
    admitted = absl::InvalidArgumentError("the chain belongs to another namespace");
  }
  if (!admitted.ok()) {
    return Refuse(OperationKind::kLookup, admitted,
                  [done = std::move(done), admitted]() mutable { done(admitted); });
  }
  if (maybe_cluster_) {
    LocateOperation::Request request{std::move(ns), KeysOf(chain), std::move(options)};
    return StartOperation<LocateOperation>(OperationKind::kLookup, std::move(request),
                                           std::move(done));
  }
  LookupOperation::Request request{std::move(ns), KeysOf(chain), std::move(options)};
  return StartOperation<LookupOperation>(OperationKind::kLookup, std::move(request),
                                         std::move(done));
}

ClientCore::OperationId ClientCoreImpl::Acquire(NamespaceRef ns, const Match& match,
                                                AcceptOptions accept, LookupCallback done) {
  absl::Status admitted = Admit();
  if (admitted.ok() && match.fingerprint != ns->fingerprint()) {
    admitted = absl::InvalidArgumentError("the match belongs to another namespace");
  }
  if (!admitted.ok()) {
    return Refuse(OperationKind::kAcquire, admitted,
                  [done = std::move(done), admitted]() mutable { done(admitted); });
  }
  AcquireOperation::Request request{std::move(ns), match, accept};
  return StartOperation<AcquireOperation>(OperationKind::kAcquire, std::move(request),
                                          std::move(done));
}

void ClientCoreImpl::Renew(const Match& held) {
  RenewLease(context_, held);
}

void ClientCoreImpl::Release(const Match& held) {
  ReleaseLease(context_, held);
}

ClientCore::OperationId ClientCoreImpl::Get(NamespaceRef ns, const Match& match, SequenceView view,
                                            GetOptions options, GetCallback done) {
  if (const absl::Status admitted = Admit(); !admitted.ok()) {
    const size_t held = match.blocks() - std::min<size_t>(match.blocks(), options.first_block);
    GetResult result;
    result.blocks.assign(options.blocks == 0 ? held : std::min<size_t>(held, options.blocks),
                         admitted);
    result.codecs.resize(result.blocks.size());
    result.declared_error.resize(result.blocks.size());
    result.proxy_error.resize(result.blocks.size());
    return Refuse(OperationKind::kGet, admitted,
                  [done = std::move(done), result = std::move(result)]() mutable {
                    done(std::move(result));
                  });
  }
  GetOperation::Request request{std::move(ns), match, std::move(view), std::move(options)};
  return StartOperation<GetOperation>(OperationKind::kGet, std::move(request), std::move(done));
}

ClientCore::OperationId ClientCoreImpl::Put(NamespaceRef ns, const TokenChain& chain,
                                            SequenceView view, PutOptions options, Task released,
                                            PutCallback stored) {
  absl::Status admitted = Admit();
  if (admitted.ok() && (chain.fingerprint() != ns->fingerprint() ||
                        chain.block_tokens() != ns->spec().block_tokens)) {
    admitted = absl::InvalidArgumentError("the chain belongs to another namespace");
  }
  if (!admitted.ok()) {
    const size_t blocks = chain.blocks() - std::min<size_t>(chain.blocks(), options.first_block);
    PutResult result;
    result.blocks.assign(options.blocks == 0 ? blocks : std::min<size_t>(blocks, options.blocks),
                         admitted);
    return Refuse(OperationKind::kPut, admitted,
                  [released = std::move(released), stored = std::move(stored),
                   result = std::move(result)]() mutable {
                    if (released) {
                      released();
                    }
                    stored(std::move(result));
                  });
  }
  const ContentId content_id = options.content_id_base.value_or(NewContentId());
  PutOperation::Request request{std::move(ns), KeysOf(chain), std::move(view), std::move(options),
                                content_id};
  if (maybe_cluster_) {
    return StartOperation<PlacedPut>(OperationKind::kPut, std::move(request), std::move(released),
                                     std::move(stored));
  }
  return StartOperation<PutOperation>(OperationKind::kPut, std::move(request), std::move(released),
                                      std::move(stored));
}

ContentId ClientCoreImpl::NewContentId() {
  // Instance random ‖ put number: no two puts of any two processes share one.
  ContentId id;
  const uint64_t number = ++puts_;
  std::memcpy(id.bytes.data(), instance_.data(), 8);
  for (size_t i = 0; i < sizeof(number); ++i) {
    id.bytes[8 + i] = static_cast<uint8_t>(number >> (8 * i));
  }
  return id;
}

ClientCore::OperationId ClientCoreImpl::Remove(NamespaceRef ns, std::vector<BlockKey> keys,
                                               RemoveCallback done) {
  if (const absl::Status admitted = Admit(); !admitted.ok()) {
    RemoveResult result;
    result.blocks.assign(keys.size(), admitted);
    return Refuse(OperationKind::kRemove, admitted,
                  [done = std::move(done), result = std::move(result)]() mutable {
                    done(std::move(result));
                  });
  }
  // Where no coordinator has said who the members are, any node may hold any block.
  const size_t unknown = maybe_cluster_ && !maybe_cluster_->map.known() ? 1 : 0;
  RemoveOperation::Request request{std::move(ns), std::move(keys), {}, links_.size() + unknown};
  for (const std::shared_ptr<NodeLink>& link : links_) {
    if (link->usable()) {
      request.links.push_back(link.get());
    }
  }
  return StartOperation<RemoveOperation>(OperationKind::kRemove, std::move(request),
                                         std::move(done));
}

ClientCore::OperationId ClientCoreImpl::Stat(StatCallback done) {
  if (const absl::Status admitted = Admit(); !admitted.ok()) {
    std::vector<absl::StatusOr<NodeStat>> stats(links_.size(), admitted);
    return Refuse(
        OperationKind::kStat, admitted,
        [done = std::move(done), stats = std::move(stats)]() mutable { done(std::move(stats)); });
  }
  std::vector<StatOperation::Target> targets;
  for (const std::shared_ptr<NodeLink>& link : links_) {
    targets.push_back({link.get(), link->trouble()});
  }
  return StartOperation<StatOperation>(OperationKind::kStat, std::move(targets), std::move(done));
}

void ClientCoreImpl::Cancel(OperationId id) {
  // Not inline: a caller that holds its own lock while it cancels must not be called back.
  executor_.Post([this, id, alive = std::weak_ptr<bool>(alive_)] {
    if (alive.expired()) {
      return;
    }
    if (const auto found = operations_.find(id); found != operations_.end()) {
      const std::shared_ptr<Operation> operation = found->second;
      operation->Cancel();
    }
  });
}

absl::Status ClientCoreImpl::SetNodes(const std::vector<std::string>& nodes) {
  TOKURA_DCHECK(executor_.IsCurrent());
  TOKURA_ASSIGN_OR_RETURN(const std::vector<net::Address> addresses, ParseAddresses(nodes));
  if (maybe_cluster_) {
    return absl::FailedPreconditionError("the coordinators say which nodes there are");
  }
  if (!shutting_down_) {
    SetLinks(addresses);
  }
  return absl::OkStatus();
}

void ClientCoreImpl::OnClusterState(const proto::ClusterState& state) {
  std::vector<net::Address> addresses;
  std::set<std::string> reborn;  // addresses of lives that are new
  up_members_.clear();
  for (const proto::Member& member : state.members()) {
    const absl::StatusOr<net::Address> address = net::Address::Parse(member.address());
    if (!address.ok()) {
      Log(LogLevel::kWarn, "client", "member_address",
          {{"node", member.node()}, {"why", address.status().message()}});
    } else if (std::find(addresses.begin(), addresses.end(), *address) == addresses.end()) {
      addresses.push_back(*address);
    }
    if (address.ok() && member.state() == proto::Member::UP) {
      up_members_.insert(*address);
    }
  }
  for (const proto::Member& member : state.members()) {
    uint64_t& highest = incarnations_[member.node()];
    if (member.incarnation() > highest) {
      reborn.insert(member.address());
    }
    highest = std::max(highest, member.incarnation());
    Fence(member.node(), highest, nullptr);
  }
  // Who heard of operations that ended by this may have had the client shut down.
  if (!shutting_down_) {
    SetLinks(addresses);
    for (const std::shared_ptr<NodeLink>& link : links_) {
      if (reborn.count(link->address().ToString()) > 0) {
        link->MeetAgain();
      }
    }
    TellOfChange();
  }
}

void ClientCoreImpl::SetLinks(const std::vector<net::Address>& addresses) {
  std::vector<std::shared_ptr<NodeLink>> before = std::exchange(links_, {});
  std::vector<std::shared_ptr<NodeLink>> added;
  for (const net::Address& address : addresses) {
    const auto kept = std::find_if(before.begin(), before.end(),
                                   [&](const auto& link) { return link->address() == address; });
    if (kept != before.end()) {
      links_.push_back(std::move(*kept));
      before.erase(kept);
    } else {
      links_.push_back(MakeLink(address, PeerKind::kNode));
      added.push_back(links_.back());
    }
  }
  for (std::shared_ptr<NodeLink>& link : before) {
    retired_.push_back(link);
    link->Stop();
  }
  for (const std::shared_ptr<NodeLink>& link : added) {
    link->Start();
  }
}

std::shared_ptr<NodeLink> ClientCoreImpl::MakeLink(const net::Address& address, PeerKind peer) {
  NodeLink::Options options;
  options.address = address;
  options.peer = peer;
  options.window_bytes = options_.window_bytes;
  options.channel.hello = net::MakeHello(transport_, "client", options_.name, instance_);
  options.channel.hello.set_format_version(kernels::FormatVersionString());
  options.channel.timeouts.hello = options_.connect_timeout;
  options.channel.timeouts.heartbeat = options_.heartbeat;
  options.channel.timeouts.dead_after = options_.dead_after;
  options.breaker.backoff_min = options_.breaker_backoff_min;
  options.breaker.backoff_max = options_.breaker_backoff_max;
  NodeLink::Owner& owner = peer == PeerKind::kNode
                               ? static_cast<NodeLink::Owner&>(*this)
                               : static_cast<NodeLink::Owner&>(maybe_cluster_->coordinators);
  return std::make_shared<NodeLink>(transport_, metrics_, std::move(options), owner);
}

absl::Status ClientCoreImpl::AdmitNode(NodeLink& link, const proto::Welcome& welcome) {
  uint64_t& highest = incarnations_[welcome.node()];
  if (welcome.incarnation() < highest && !bugs_.accept_lower_incarnation) {
    metrics_.fenced->Increment();
    return absl::FailedPreconditionError(
        absl::StrCat("node ", welcome.node(), " came back as incarnation ", welcome.incarnation(),
                     ", which is fenced by ", highest));
  }
  highest = std::max(highest, welcome.incarnation());
  Fence(welcome.node(), welcome.incarnation(), &link);
  return absl::OkStatus();
}

void ClientCoreImpl::Fence(const std::string& node, uint64_t incarnation,
                           const NodeLink* maybe_newest) {
  // The incarnation before is gone; whatever still answers in its name is a zombie.
  const std::vector<std::shared_ptr<NodeLink>> links = links_;
  for (const std::shared_ptr<NodeLink>& link : links) {
    const bool older =
        link.get() != maybe_newest && link->node() == node && link->incarnation() < incarnation;
    if (older && link->up() && !bugs_.accept_lower_incarnation) {
      metrics_.fenced->Increment();
      link->Drop(absl::UnavailableError(absl::StrCat(
          "node ", node, " incarnation ", link->incarnation(), " is fenced by ", incarnation)));
    }
  }
}

uint64_t ClientCoreImpl::FencedBelow(const std::string& node) const {
  const auto found = incarnations_.find(node);
  return found == incarnations_.end() || bugs_.accept_lower_incarnation ? 0 : found->second;
}

bool ClientCoreImpl::ready() const {
  if (maybe_cluster_ && !maybe_cluster_->map.known()) {
    return false;
  }
  // A cluster without members is as ready as it can be.
  return (maybe_cluster_ && links_.empty()) ||
         std::any_of(links_.begin(), links_.end(),
                     [](const std::shared_ptr<NodeLink>& link) { return link->usable(); });
}

bool ClientCoreImpl::settled() const {
  return std::none_of(links_.begin(), links_.end(), [this](const std::shared_ptr<NodeLink>& link) {
    return link->meeting() && up_members_.count(link->address()) > 0;
  });
}

void ClientCoreImpl::TellOfChange() {
  if (maybe_cluster_) {
    maybe_cluster_->introductions.OnChange();
  }
  if (!ready_waiters_.empty() && ready() && settled()) {
    AnswerReadyWaiters(absl::OkStatus());
  }
}

void ClientCoreImpl::WhenReady(TimePoint deadline, absl::AnyInvocable<void(absl::Status)> done) {
  if (shutting_down_) {
    executor_.Post([done = std::move(done)]() mutable {
      done(absl::CancelledError("the client is shutting down"));
    });
    return;
  }
  const uint64_t id = next_id_++;
  ReadyWaiter& waiter = ready_waiters_[id];
  waiter.done = std::move(done);
  const bool now = ready() && settled();
  waiter.timer = executor_.RunAt(now ? executor_.Now() : deadline, [this, id] {
    ReadyWaiter due = std::move(ready_waiters_.extract(id).mapped());
    due.done(ready() ? absl::OkStatus() : DescribeTrouble());
  });
}

void ClientCoreImpl::AnswerReadyWaiters(const absl::Status& status) {
  std::map<uint64_t, ReadyWaiter> waiters = std::exchange(ready_waiters_, {});
  for (auto& [id, waiter] : waiters) {
    executor_.CancelTimer(waiter.timer);
  }
  for (auto& [id, waiter] : waiters) {
    waiter.done(status);
  }
}

absl::Status ClientCoreImpl::DescribeTrouble() const {
  if (maybe_cluster_ && !maybe_cluster_->map.known()) {
    return absl::DeadlineExceededError(maybe_cluster_->coordinators.Trouble());
  }
  std::string text = "no node is connected";
  for (const std::shared_ptr<NodeLink>& link : links_) {
    absl::StrAppend(&text, "; ", link->address().ToString(), ": ", link->trouble().message());
  }
  return absl::DeadlineExceededError(links_.empty() ? "no node is listed" : text);
}

void ClientCoreImpl::OnLinkUp(NodeLink&) {
  TellOfChange();
}

void ClientCoreImpl::OnLinkFailed(NodeLink&) {
  TellOfChange();
}

template <typename F>
void ClientCoreImpl::TellOperations(F&& tell) {
  std::vector<OperationId> ids;
  ids.reserve(operations_.size());
  for (const auto& [id, operation] : operations_) {
    ids.push_back(id);
  }
  for (const OperationId id : ids) {
    if (const auto found = operations_.find(id); found != operations_.end()) {
      const std::shared_ptr<Operation> operation = found->second;
      tell(*operation);
    }
  }
}

void ClientCoreImpl::OnLinkDraining(NodeLink& link, const absl::Status& why) {
  TellOperations([&](Operation& operation) { operation.OnLinkDraining(link, why); });
}

void ClientCoreImpl::OnLinkLost(NodeLink& link, const absl::Status& why) {
  TellOperations([&](Operation& operation) { operation.OnLinkLost(link, why); });
}

void ClientCoreImpl::OnLinkStopped(NodeLink& link) {
  const auto is_link = [&link](const std::shared_ptr<NodeLink>& held) {
    return held.get() == &link;
  };
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(), is_link), retired_.end());
  FinishShutdown();
}

void ClientCoreImpl::Shutdown(Task done) {
  TOKURA_CHECK(!shutting_down_);
  shutting_down_ = true;
  shutdown_done_ = std::move(done);
  AnswerReadyWaiters(absl::CancelledError("the client is shutting down"));
  TellOperations([](Operation& operation) { operation.Cancel(); });
  if (maybe_cluster_) {
    maybe_cluster_->map.Stop();
    maybe_cluster_->coordinators.Stop([this] { FinishShutdown(); });
  }
  SetLinks({});
  FinishShutdown();
}

void ClientCoreImpl::FinishShutdown() {
  const bool connected = maybe_cluster_ && !maybe_cluster_->coordinators.stopped();
  const bool over = shutting_down_ && operations_.empty() && retired_.empty() && links_.empty() &&
                    !connected && ring_->used() == 0;
  if (!over || !shutdown_done_) {
    return;
  }
  executor_.Post(std::exchange(shutdown_done_, nullptr));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClientCore>> ClientCore::Create(Dependencies dependencies,
                                                               ClientOptions options,
                                                               ClientPlantedBugs bugs) {
  net::RouteProtobufLog();
  TOKURA_RETURN_IF_ERROR(CheckOptions(options));
  TOKURA_RETURN_IF_ERROR(ParseAddresses(options.nodes).status());
  TOKURA_RETURN_IF_ERROR(ParseAddresses(options.coordinators).status());
  ClientCoreImpl::Made made;
  TOKURA_ASSIGN_OR_RETURN(made.profiles, kernels::ProfileStore::Load(options.profiles));
  TOKURA_ASSIGN_OR_RETURN(made.ring,
                          Ring::Create(dependencies.transport, {.bytes = options.ring_bytes}));
  auto core = std::make_unique<ClientCoreImpl>(std::move(dependencies), std::move(options), bugs,
                                               std::move(made));
  TOKURA_RETURN_IF_ERROR(core->Connect());
  return core;
}

}  // namespace tokura
