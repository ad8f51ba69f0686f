#pragma once

#include <cstdint>
#include <memory>

#include "common/executor.h"
#include "common/net/transport.h"
#include "common/random.h"
#include "tokura/types.h"

namespace prometheus {
class Registry;
}

namespace tokura {

// Planted bugs, for the simulation's own test only: each must be found by its checker.
struct ClientPlantedBugs {
  bool skip_crc = false;
  bool write_after_deadline = false;
  bool accept_lower_incarnation = false;
};

// The asynchronous client, owned by one executor (a transport's progress thread, or the
// simulation): every call and every callback happens on that executor's thread. `Client` (client.h)
// is this plus a thread and blocking calls; use the core directly to drive the client from your own
// event loop.
//
// Promises:
//  * every operation calls its callback exactly once, by its deadline plus scheduling slack,
//  whatever the nodes do;
//  * after a GetCallback ran, no byte of the view changes, whatever is still under way inside;
//  * after a put's released callback ran, no byte of the view is read; it runs by the deadline at
//  the latest;
//  * a block whose put ended CANCELLED never becomes visible;
//  * a dead node costs one deadline: its breaker then fails operations at once, and a background
//  probe brings it back.
class ClientCore {
 public:
  struct Dependencies {
    net::Transport& transport;
    WorkerPool& pool;  // encode and decode, one layer a step
    RandomSource& random;
    std::shared_ptr<prometheus::Registry> metrics;  // shared with the process's admin server
  };
  using OperationId = uint64_t;
  using LookupCallback = absl::AnyInvocable<void(absl::StatusOr<Match>)>;
  using GetCallback = absl::AnyInvocable<void(GetResult)>;
  using PutCallback = absl::AnyInvocable<void(PutResult)>;
  using RemoveCallback = absl::AnyInvocable<void(RemoveResult)>;
  using StatCallback = absl::AnyInvocable<void(std::vector<absl::StatusOr<NodeStat>>)>;

  // Reads the options' model profiles. INVALID_ARGUMENT: an option, an address, or a file that is
  // no profile; FAILED_PRECONDITION: a profile of another version; DATA_LOSS: a damaged one;
  // NOT_FOUND, UNAVAILABLE: one that cannot be read (the message names the file);
  // RESOURCE_EXHAUSTED: the ring could not be registered, or too many profiles.
  static absl::StatusOr<std::unique_ptr<ClientCore>> Create(Dependencies dependencies,
                                                            ClientOptions options,
                                                            ClientPlantedBugs bugs = {});
  // Only after Shutdown's callback ran.
  virtual ~ClientCore() = default;

  // The leading blocks of `chain` that some node holds in an acceptable form. OK with an empty
  // match when there are none or no node answers (a cache failure is a miss). INVALID_ARGUMENT:
  // chain and namespace disagree.
  virtual OperationId Lookup(NamespaceRef ns, const TokenChain& chain, LookupOptions options,
                             LookupCallback done) = 0;
  // Pin at the nodes, cut to the first gap; their leases then hold until Release, lease_age without
  // use, or the end of the connection that acquired them.
  virtual OperationId Acquire(NamespaceRef ns, const Match& match, AcceptOptions accept,
                              LookupCallback done) = 0;
  virtual void Renew(const Match& held) = 0;
  virtual void Release(const Match& held) = 0;
  // Fetch blocks of `match` into `view`: block i of the match goes to tokens i·block_tokens of the
  // sequence. Of a hint, each Get may find another writer's form of a block: to fetch the parts or
  // layers of one block by several Gets, Acquire first. A block whose bytes do not match their
  // checksums is DATA_LOSS; the node that sent them is then asked, beside all operations, to check
  // what it stores and to drop it if it is damaged there, so that a put stores the block again.
  virtual OperationId Get(NamespaceRef ns, const Match& match, SequenceView view,
                          GetOptions options, GetCallback done) = 0;
  // Encode and store blocks of `chain` from `view`. `released`: the view is no longer read;
  // `stored`: the outcome.
  virtual OperationId Put(NamespaceRef ns, const TokenChain& chain, SequenceView view,
                          PutOptions options, Task released, PutCallback stored) = 0;
  virtual OperationId Remove(NamespaceRef ns, std::vector<BlockKey> keys, RemoveCallback done) = 0;
  virtual OperationId Stat(StatCallback done) = 0;
  // End an operation early: its callback runs soon with CANCELLED for what has not finished.
  // Unknown ids are ignored.
  virtual void Cancel(OperationId id) = 0;

  // Replace the list of nodes; connections to nodes still listed stay. INVALID_ARGUMENT: an
  // address; FAILED_PRECONDITION: coordinators say which nodes there are.
  virtual absl::Status SetNodes(const std::vector<std::string>& nodes) = 0;
  // Whether some node is connected, or a coordinator says that there are none.
  virtual bool ready() const = 0;
  // Call `done` with OK once that is so, soon when it is already; in a cluster, once every member
  // that is up is connected or has failed, too, so that no block is missed because its node has not
  // been met yet. At `deadline` one connected node is enough; else DEADLINE_EXCEEDED says what was
  // tried and why it failed. CANCELLED: shut down.
  virtual void WhenReady(TimePoint deadline, absl::AnyInvocable<void(absl::Status)> done) = 0;
  // Cancel everything, close connections, wait for the transport to give every buffer back, then
  // call `done`.
  virtual void Shutdown(Task done) = 0;
};

}  // namespace tokura
