#include "tokura/client.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "client-lib/src/deadline.h"
#include "common/check.h"
#include "common/loop_pool.h"
#include "common/mutex.h"
#include "common/net/ucx_transport.h"
#include "common/random.h"
#include "common/status_macros.h"

namespace tokura {
namespace {

// A value that one thread gives and others wait for. Thread-safe.
template <typename T>
class Awaited {
 public:
  void Set(T value) {
    // Notify under the lock: whoever sees the value may destroy this object at once.
    const std::lock_guard<std::mutex> lock(mutex_);
    value_ = std::move(value);
    changed_.notify_all();
  }
  // A copy, so that several may wait.
  T Get() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return value_.has_value(); });
    return *value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<T> value_;
};

struct Nothing {};

constexpr uint32_t kCodecThreadsMax = 256;

// The process's UCX context, made for the first client and gone with the last.
absl::StatusOr<std::shared_ptr<net::UcxContext>> SharedContext() {
  static std::mutex mutex;
  static std::weak_ptr<net::UcxContext>& shared = *new std::weak_ptr<net::UcxContext>();
  const std::lock_guard<std::mutex> lock(mutex);
  if (std::shared_ptr<net::UcxContext> context = shared.lock()) {
    return context;
  }
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<net::UcxContext> made, net::UcxContext::Create({}));
  std::shared_ptr<net::UcxContext> context = std::move(made);  // owners: the process's clients
  shared = context;
  return context;
}

// Name of an operation that the progress thread may not have started yet. Progress thread only.
struct Started {
  ClientCore::OperationId id = 0;
  bool cancelled = false;
};

// The caller's end of a get or put. Shared by the handle and the operation's callbacks.
template <typename Result>
struct Pending {
  Awaited<Result> result;
  Awaited<Nothing> released;
  Started started;
};

// The way from a handle to its client, which it may outlive. Thread-safe. Owners: the client and
// its handles.
class CancelRoute {
 public:
  // The core is the progress thread's; `core` outlives it or Close.
  CancelRoute(Executor& executor, const std::unique_ptr<ClientCore>& core)
      : maybe_executor_(&executor), core_(core) {}

  // Cancel on the progress thread, also when the operation has not been started there yet. Nothing
  // once the client is gone: it has ended every operation.
  template <typename Result>
  void Cancel(std::shared_ptr<Pending<Result>> pending) TOKURA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (maybe_executor_ == nullptr) {
      return;
    }
    // Post, not TryPost: a cancel must not be lost, and there is at most one per operation.
    maybe_executor_->Post([&core = core_, pending = std::move(pending)] {
      pending->started.cancelled = true;
      if (core && pending->started.id != 0) {
        core->Cancel(pending->started.id);
      }
    });
  }
  void Close() TOKURA_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    maybe_executor_ = nullptr;
  }

 private:
  Mutex mutex_;  // before the executor's own lock
  Executor* maybe_executor_ TOKURA_GUARDED_BY(mutex_);
  const std::unique_ptr<ClientCore>& core_;
};

class ClientImpl final : public Client {
 public:
  ClientImpl(std::shared_ptr<net::UcxContext> context, std::unique_ptr<net::UcxTransport> transport,
             uint32_t codec_threads);
  ~ClientImpl() override;
  // Start the progress thread and the core on it.
  absl::Status Start(ClientOptions options, std::shared_ptr<prometheus::Registry> metrics);

  absl::StatusOr<NamespaceRef> OpenNamespace(NamespaceSpec spec) override;
  absl::Status WaitReady(Duration timeout) override;
  absl::StatusOr<Match> Lookup(const NamespaceRef& ns, const TokenChain& chain,
                               const LookupOptions& options) override;
  absl::StatusOr<Match> Acquire(const NamespaceRef& ns, const Match& match,
                                const AcceptOptions& accept) override;
  void Renew(const Match& held) override;
  void Release(const Match& held) override;
  GetResult Get(const NamespaceRef& ns, const Match& match, const SequenceView& view,
                const GetOptions& options) override;
  std::unique_ptr<GetHandle> StartGet(const NamespaceRef& ns, const Match& match,
                                      const SequenceView& view, const GetOptions& options) override;
  std::unique_ptr<PutHandle> StartPut(const NamespaceRef& ns, const TokenChain& chain,
                                      const SequenceView& view, const PutOptions& options) override;
  RemoveResult Remove(const NamespaceRef& ns, const std::vector<BlockKey>& keys) override;
  std::vector<absl::StatusOr<NodeStat>> Stat() override;
  absl::Status SetNodes(const std::vector<std::string>& nodes) override;
  Executor& executor() override { return transport_->executor(); }
  ClientCore& core() override { return *core_; }

 private:
  // Run `task` with the core. False: too many calls wait for the progress thread.
  bool Run(absl::AnyInvocable<void(ClientCore&)> task);
  static void NoteStarted(Started& started, ClientCore::OperationId id, ClientCore& core);
  static absl::Status Overloaded() {
    return absl::ResourceExhaustedError("too many calls wait for the progress thread");
  }

  std::shared_ptr<net::UcxContext> context_;  // owners: the process's clients
  std::unique_ptr<net::UcxTransport> transport_;
  std::unique_ptr<WorkerPool> pool_;
  std::unique_ptr<ClientCore> core_;  // progress thread only
  std::shared_ptr<CancelRoute> route_ =
      std::make_shared<CancelRoute>(transport_->executor(), core_);  // owners: this and handles
  std::thread thread_;
};

class GetHandleImpl final : public GetHandle {
 public:
  GetHandleImpl(std::shared_ptr<CancelRoute> route, std::shared_ptr<Pending<GetResult>> pending)
      : route_(std::move(route)), pending_(std::move(pending)) {}
  ~GetHandleImpl() override {
    if (!waited_) {
      Cancel();
      pending_->result.Get();
    }
  }
  GetResult Wait() override {
    GetResult result = pending_->result.Get();
    waited_ = true;
    return result;
  }
  void Cancel() override { route_->Cancel(pending_); }

 private:
  std::shared_ptr<CancelRoute> route_;           // owners: the client and its handles
  std::shared_ptr<Pending<GetResult>> pending_;  // owners: this and the operation's callback
  std::atomic<bool> waited_ = false;
};

class PutHandleImpl final : public PutHandle {
 public:
  PutHandleImpl(std::shared_ptr<CancelRoute> route, std::shared_ptr<Pending<PutResult>> pending)
      : route_(std::move(route)), pending_(std::move(pending)) {}
  void WaitReleased() override { pending_->released.Get(); }
  PutResult Wait() override { return pending_->result.Get(); }
  void Cancel() override { route_->Cancel(pending_); }

 private:
  std::shared_ptr<CancelRoute> route_;           // owners: the client and its handles
  std::shared_ptr<Pending<PutResult>> pending_;  // owners: this and the operation's callbacks
};

ClientImpl::ClientImpl(std::shared_ptr<net::UcxContext> context,
                       std::unique_ptr<net::UcxTransport> transport, uint32_t codec_threads)
    : context_(std::move(context)),
      transport_(std::move(transport)),
      pool_(MakeLoopPool({&transport_->executor()},
                         MakeThreadPool(static_cast<int>(codec_threads), "tokura-codec"),
                         ProcessorsFor(1))) {}

ClientImpl::~ClientImpl() {
  route_->Close();
  if (core_) {
    Awaited<Nothing> done;
    transport_->executor().Post([this, &done] {
      core_->Shutdown([this, &done] {
        core_.reset();
        done.Set({});
      });
    });
    done.Get();
  }
  if (thread_.joinable()) {
    transport_->Stop();
    thread_.join();
  }
}

absl::Status ClientImpl::Start(ClientOptions options,
                               std::shared_ptr<prometheus::Registry> metrics) {
  thread_ = std::thread([this] { transport_->Run(); });
  Awaited<absl::Status> created;
  transport_->executor().Post([&] {
    absl::StatusOr<std::unique_ptr<ClientCore>> core = ClientCore::Create(
        {*transport_, *pool_, SystemRandom(), std::move(metrics)}, std::move(options));
    if (core.ok()) {
      core_ = std::move(*core);
    }
    created.Set(core.status());
  });
  return created.Get();
}

bool ClientImpl::Run(absl::AnyInvocable<void(ClientCore&)> task) {
  return transport_->executor().TryPost([this, task = std::move(task)]() mutable { task(*core_); });
}

absl::StatusOr<NamespaceRef> ClientImpl::OpenNamespace(NamespaceSpec spec) {
  TOKURA_RETURN_IF_ERROR(ValidateNamespace(spec));
  return std::make_shared<const Namespace>(std::move(spec));
}

absl::Status ClientImpl::WaitReady(Duration timeout) {
  auto status = std::make_shared<Awaited<absl::Status>>();  // owners: the caller and the callback
  const TimePoint deadline = After(transport_->executor().Now(), timeout);
  const bool posted = Run([deadline, status](ClientCore& core) {
    core.WhenReady(deadline, [status](absl::Status ready) { status->Set(std::move(ready)); });
  });
  return posted ? status->Get() : Overloaded();
}

absl::StatusOr<Match> ClientImpl::Lookup(const NamespaceRef& ns, const TokenChain& chain,
                                         const LookupOptions& options) {
  Awaited<absl::StatusOr<Match>> match;
  const bool posted = Run([&](ClientCore& core) {
    core.Lookup(ns, chain, options, [&match](absl::StatusOr<Match> m) { match.Set(std::move(m)); });
  });
  return posted ? match.Get() : Overloaded();
}

absl::StatusOr<Match> ClientImpl::Acquire(const NamespaceRef& ns, const Match& match,
                                          const AcceptOptions& accept) {
  Awaited<absl::StatusOr<Match>> held;
  const bool posted = Run([&](ClientCore& core) {
    core.Acquire(ns, match, accept, [&held](absl::StatusOr<Match> m) { held.Set(std::move(m)); });
  });
  return posted ? held.Get() : Overloaded();
}

void ClientImpl::Renew(const Match& held) {
  Run([held](ClientCore& core) { core.Renew(held); });
}

void ClientImpl::Release(const Match& held) {
  Run([held](ClientCore& core) { core.Release(held); });
}

GetResult ClientImpl::Get(const NamespaceRef& ns, const Match& match, const SequenceView& view,
                          const GetOptions& options) {
  return StartGet(ns, match, view, options)->Wait();
}

std::unique_ptr<GetHandle> ClientImpl::StartGet(const NamespaceRef& ns, const Match& match,
                                                const SequenceView& view,
                                                const GetOptions& options) {
  auto pending = std::make_shared<Pending<GetResult>>();
  const bool posted = Run([pending, ns, match, view, options](ClientCore& core) mutable {
    const ClientCore::OperationId id =
        core.Get(std::move(ns), match, std::move(view), std::move(options),
                 [pending](GetResult result) { pending->result.Set(std::move(result)); });
    NoteStarted(pending->started, id, core);
  });
  if (!posted) {
    GetResult refused;
    const size_t held = match.blocks() - std::min<size_t>(match.blocks(), options.first_block);
    refused.blocks.assign(options.blocks == 0 ? held : std::min<size_t>(held, options.blocks),
                          Overloaded());
    refused.codecs.resize(refused.blocks.size());
    refused.declared_error.resize(refused.blocks.size());
    refused.proxy_error.resize(refused.blocks.size());
    pending->result.Set(std::move(refused));
  }
  return std::make_unique<GetHandleImpl>(route_, std::move(pending));
}

std::unique_ptr<PutHandle> ClientImpl::StartPut(const NamespaceRef& ns, const TokenChain& chain,
                                                const SequenceView& view,
                                                const PutOptions& options) {
  auto pending = std::make_shared<Pending<PutResult>>();
  const bool posted = Run([pending, ns, chain, view, options](ClientCore& core) mutable {
    const ClientCore::OperationId id = core.Put(
        std::move(ns), chain, std::move(view), std::move(options),
        [pending] { pending->released.Set({}); },
        [pending](PutResult result) { pending->result.Set(std::move(result)); });
    NoteStarted(pending->started, id, core);
  });
  if (!posted) {
    const size_t blocks = chain.blocks() - std::min<size_t>(chain.blocks(), options.first_block);
    PutResult refused;
    refused.blocks.assign(options.blocks == 0 ? blocks : std::min<size_t>(blocks, options.blocks),
                          Overloaded());
    pending->released.Set({});
    pending->result.Set(std::move(refused));
  }
  return std::make_unique<PutHandleImpl>(route_, std::move(pending));
}

void ClientImpl::NoteStarted(Started& started, ClientCore::OperationId id, ClientCore& core) {
  started.id = id;
  if (started.cancelled) {
    core.Cancel(id);
  }
}

RemoveResult ClientImpl::Remove(const NamespaceRef& ns, const std::vector<BlockKey>& keys) {
  Awaited<RemoveResult> result;
  const bool posted = Run([&](ClientCore& core) {
    core.Remove(ns, keys, [&result](RemoveResult r) { result.Set(std::move(r)); });
  });
  if (posted) {
    return result.Get();
  }
  RemoveResult refused;
  refused.blocks.assign(keys.size(), Overloaded());
  return refused;
}

std::vector<absl::StatusOr<NodeStat>> ClientImpl::Stat() {
  Awaited<std::vector<absl::StatusOr<NodeStat>>> stats;
  const bool posted = Run([&](ClientCore& core) {
    core.Stat([&stats](std::vector<absl::StatusOr<NodeStat>> s) { stats.Set(std::move(s)); });
  });
  return posted ? stats.Get() : std::vector<absl::StatusOr<NodeStat>>{Overloaded()};
}

absl::Status ClientImpl::SetNodes(const std::vector<std::string>& nodes) {
  Awaited<absl::Status> status;
  const bool posted = Run([&](ClientCore& core) { status.Set(core.SetNodes(nodes)); });
  return posted ? status.Get() : Overloaded();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(
    ClientOptions options, std::shared_ptr<prometheus::Registry> metrics) {
  if (options.codec_threads == 0 || options.codec_threads > kCodecThreadsMax) {
    return absl::InvalidArgumentError("codec_threads must be 1 to 256");
  }
  TOKURA_ASSIGN_OR_RETURN(std::shared_ptr<net::UcxContext> context, SharedContext());
  net::UcxTransport::Options transport_options;
  transport_options.name = options.name;
  transport_options.wake = options.wake == ClientOptions::Wake::kSpin
                               ? net::UcxTransport::Options::Wake::kSpin
                               : net::UcxTransport::Options::Wake::kSleep;
  transport_options.spin = options.spin;
  TOKURA_ASSIGN_OR_RETURN(std::unique_ptr<net::UcxTransport> transport,
                          net::UcxTransport::Create(*context, std::move(transport_options)));
  auto client =
      std::make_unique<ClientImpl>(std::move(context), std::move(transport), options.codec_threads);
  TOKURA_RETURN_IF_ERROR(client->Start(std::move(options), std::move(metrics)));
  return client;
}

}  // namespace tokura
