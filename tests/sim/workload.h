#pragma once

// Random operations on a cluster's clients, each tracked until its callback, each answer checked.

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/faults.h"
#include "tests/sim/memory_audit.h"

namespace tokura::sim {

class Workload {
 public:
  // Outcomes by absl::StatusCode.
  using Statuses = std::array<uint64_t, 17>;

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

 private:
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

  void StartPut(ClientProcess& client);
  void StartShardedPut();
  void Put(ClientProcess& client, uint32_t chain, Variant variant, PutOptions options,
           uint32_t first_shard, uint32_t shards);
  void OnStored(uint32_t chain, uint32_t first_block, Variant variant, const PutResult& result);
  void StartRead(ClientProcess& client);
  void OnLookup(const Operation& operation, uint32_t chain, AcceptOptions accept,
                absl::StatusOr<Match> match);
  void StartAcquire(ClientProcess& client, uint32_t chain, AcceptOptions accept,
                    const Match& match);
  void StartGet(ClientProcess& client, uint32_t chain, AcceptOptions accept, const Match& match);
  void OnGot(const OperationRef& operation, const std::shared_ptr<KvBuffer>& buffer,
             Checker::Reading* reading, const GetResult& result);
  void StartRemove(ClientProcess& client);
  void StartStat(ClientProcess& client);
  void UseLease(ClientProcess& client);
  void CancelSome(ClientProcess& client);
  void CheckIncarnation(const Operation& operation, const std::string& node, uint64_t incarnation);
  PutOptions RandomPut();
  ContentId RandomContent();
  size_t PutsOf(uint32_t chain) const;  // under way

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
};

}  // namespace tokura::sim
