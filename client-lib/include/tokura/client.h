#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tokura/client_core.h"
#include "tokura/types.h"

namespace tokura {

// A put under way. Thread-safe; may outlive its client, whose end cancels it. Destroying it does
// not cancel; the view must stay valid until WaitReleased returned.
class PutHandle {
 public:
  virtual ~PutHandle() = default;
  // Block until the view is no longer read (bounded by the put's deadline).
  virtual void WaitReleased() = 0;
  // Block until the outcome is known (bounded by the deadline).
  virtual PutResult Wait() = 0;
  virtual void Cancel() = 0;
};

// A get under way. Thread-safe; may outlive its client, whose end cancels it. Destroying it cancels
// and waits until the view is no longer written.
class GetHandle {
 public:
  virtual ~GetHandle() = default;
  virtual GetResult Wait() = 0;
  virtual void Cancel() = 0;
};

// Tokura's client: share KV blocks through cache nodes. Thread-safe. Calls block at most until
// their deadline and never fail because the cache does: a dead node is a miss. One Client per
// process is enough; it owns one progress thread, the codec threads and one registered ring. See
// client-lib/examples/share_prefix.cc.
class Client {
 public:
  // As ClientCore::Create, and UNAVAILABLE: the transport does not start. Nodes need not be
  // reachable; connections are made in the background.
  static absl::StatusOr<std::unique_ptr<Client>> Create(
      ClientOptions options, std::shared_ptr<prometheus::Registry> metrics = nullptr);
  virtual ~Client() = default;

  // INVALID_ARGUMENT names the field and the rule (ValidateNamespace).
  virtual absl::StatusOr<NamespaceRef> OpenNamespace(NamespaceSpec spec) = 0;
  // Wait until some node is connected (or a coordinator says that there are none), in a cluster
  // until every member that is up is connected or has failed, at most `timeout`: then one node is
  // enough. DEADLINE_EXCEEDED says what was tried and why it failed.
  virtual absl::Status WaitReady(Duration timeout) = 0;

  virtual absl::StatusOr<Match> Lookup(const NamespaceRef& ns, const TokenChain& chain,
                                       const LookupOptions& options = {}) = 0;
  virtual absl::StatusOr<Match> Acquire(const NamespaceRef& ns, const Match& match,
                                        const AcceptOptions& accept = {}) = 0;
  virtual void Renew(const Match& held) = 0;
  virtual void Release(const Match& held) = 0;
  virtual GetResult Get(const NamespaceRef& ns, const Match& match, const SequenceView& view,
                        const GetOptions& options = {}) = 0;
  virtual std::unique_ptr<GetHandle> StartGet(const NamespaceRef& ns, const Match& match,
                                              const SequenceView& view,
                                              const GetOptions& options = {}) = 0;
  virtual std::unique_ptr<PutHandle> StartPut(const NamespaceRef& ns, const TokenChain& chain,
                                              const SequenceView& view,
                                              const PutOptions& options = {}) = 0;
  // StartPut and Wait.
  PutResult Put(const NamespaceRef& ns, const TokenChain& chain, const SequenceView& view,
                const PutOptions& options = {}) {
    return StartPut(ns, chain, view, options)->Wait();
  }
  virtual RemoveResult Remove(const NamespaceRef& ns, const std::vector<BlockKey>& keys) = 0;
  virtual std::vector<absl::StatusOr<NodeStat>> Stat() = 0;
  virtual absl::Status SetNodes(const std::vector<std::string>& nodes) = 0;

  // For callers that want callbacks instead: the core, which is to be used on the executor's thread
  // only. Both live until the client's destructor has ended every operation; a task posted before
  // that destructor starts runs.
  virtual Executor& executor() = 0;
  virtual ClientCore& core() = 0;
};

}  // namespace tokura
