#pragma once

// Random operations on a cluster's clients, each tracked until its callback, each answer checked.

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/counts.h"
#include "tests/sim/faults.h"
#include "tests/sim/memory_audit.h"

namespace tokura::sim {

// Thread-compatible; between events of the scheduler.
class Workload {
 public:
  Workload(Cluster& cluster, KvUniverse& universe, Checker& checker, MemoryAudit& audit)
      : cluster_(cluster), universe_(universe), checker_(checker), audit_(audit) {}

  void set_faults(const FaultInjector* faults) { faults_ = faults; }
  // Start one random operation (or a chain of them: look up, acquire, get, release).
  void StartRandom();
  // Every operation that should have ended by now has, and no memory of a finished one has changed.
  void Check();
  uint32_t StagesOf(size_t client) const;
  bool idle() const;
  uint64_t started() const { return started_; }
  const Statuses& put_statuses() const { return put_statuses_; }
  const Statuses& get_statuses() const { return get_statuses_; }
  // Puts of two writers together; those of which one writer never came or died; puts that began
  // while another of the same chain was under way.
  uint64_t sharded() const { return sharded_; }
  uint64_t halves() const { return halves_; }
  uint64_t contested() const { return contested_; }
  // Leases whose match travelled to two workers; their gets of another process's intact lease.
  uint64_t shared_leases() const { return shared_leases_; }
  uint64_t carried() const { return carried_; }

 private:
  // For operations that end by progress instead of a stated deadline.
  static constexpr Duration kProgressLimit = std::chrono::milliseconds(1500);
  // After a fault nothing is expected of a lease that was asked for within this.
  static constexpr Duration kCalm = std::chrono::seconds(2);

  struct Operation {
    Stage stage;
    ClientProcess* client;
    ClientCore::OperationId id = 0;
    TimePoint started;
    TimePoint due;
    bool done = false;
    bool reading = false;           // a put that has not released its view
    bool sharded = false;           // a put of one of two writers
    std::optional<uint32_t> chain;  // of a put
    std::string what;
  };
  using OperationRef = std::shared_ptr<Operation>;  // shared by the list and the callbacks
  // Memory of a finished get: must not change until it is used again.
  struct Frozen {
    ClientProcess* client;
    std::shared_ptr<KvBuffer> buffer;
    uint32_t crc;
    TimePoint until;
  };

  OperationRef Begin(ClientProcess& client, Stage stage, Duration limit, std::string what);
  void End(const OperationRef& operation);
  ClientProcess* PickClient();
  std::shared_ptr<KvBuffer> TakeBuffer(ClientProcess& client);
  void Freeze(ClientProcess& client, std::shared_ptr<KvBuffer> buffer);

  // Puts (workload_puts.cc).
  struct Writing {
    uint32_t chain = 0;
    Variant variant = 0;
    uint32_t group_mask = 0;
    uint32_t first_shard = 0;
    uint32_t shards = kShards;
  };
  void StartPut(ClientProcess& client);
  void StartShardedPut();
  void Put(ClientProcess& client, const Writing& writing, PutOptions options);
  void OnStored(uint32_t chain, uint32_t first_block, Variant variant, const PutResult& result);
  PutOptions RandomPut();
  uint32_t RandomGroups(uint32_t chain);
  ContentId RandomContent();
  size_t PutsOf(uint32_t chain) const;  // under way

  // Reads and leases (workload_reads.cc).
  struct Reader {
    uint32_t chain = 0;
    AcceptOptions accept;
    uint32_t first_shard = 0;
    uint32_t shards = kShards;
    std::shared_ptr<Lease> lease;  // null: a hint only; shared with the client that has it
  };
  void StartRead(ClientProcess& client);
  void OnLookup(const Operation& operation, const Reader& reader,
                const absl::StatusOr<Match>& match);
  void StartAcquire(ClientProcess& client, const Reader& reader, const Match& match);
  void OnAcquired(const Operation& operation, Reader reader, const absl::StatusOr<Match>& held);
  void Carry(const Reader& reader, const Match& match, uint32_t shards);
  void Load(size_t worker, const Reader& reader, const std::string& bytes);
  void StartGet(ClientProcess& client, const Reader& reader, const Match& match);
  void OnGot(const Operation& operation, const std::shared_ptr<KvBuffer>& buffer,
             Checker::Reading& reading, const Lease* maybe_lease, const GetResult& result);
  bool Undisturbed(const Lease& lease) const;
  void UseLease(ClientProcess& client);
  void ReleaseAgain(ClientProcess& client, std::shared_ptr<Lease> lease, Duration after);

  void StartRemove(ClientProcess& client);
  void StartStat(ClientProcess& client);
  void CancelSome(ClientProcess& client);
  void CheckIncarnation(const Operation& operation, const std::string& node, uint64_t incarnation);
  Duration RandomDeadline();

  Cluster& cluster_;
  KvUniverse& universe_;
  Checker& checker_;
  MemoryAudit& audit_;
  const FaultInjector* faults_ = nullptr;
  std::list<OperationRef> operations_;
  std::list<Frozen> frozen_;
  Variant last_variant_ = 0;
  uint64_t started_ = 0;
  Statuses put_statuses_{};
  Statuses get_statuses_{};
  uint64_t sharded_ = 0;
  uint64_t halves_ = 0;
  uint64_t contested_ = 0;
  uint64_t shared_leases_ = 0;
  uint64_t carried_ = 0;
};

}  // namespace tokura::sim
