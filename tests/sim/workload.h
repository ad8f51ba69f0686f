#pragma once

// Random operations on a cluster's clients, each tracked until its callback, each answer checked.

#include <cstdint>
#include <list>
#include <memory>
#include <string>

#include "tests/sim/checker.h"
#include "tests/sim/cluster.h"
#include "tests/sim/faults.h"

namespace tokura::sim {

class Workload {
 public:
  Workload(Cluster& cluster, KvUniverse& universe, Checker& checker)
      : cluster_(cluster), universe_(universe), checker_(checker) {}

  void set_faults(const FaultInjector* faults) { faults_ = faults; }
  // Start one random operation (or a chain of them: look up, acquire, get, release).
  void StartRandom();
  // Every operation that should have ended by now has, and no memory of a finished one has changed.
  void Check();
  uint32_t StagesOf(size_t client) const;
  bool idle() const;
  uint64_t started() const { return started_; }
  uint64_t stored() const { return stored_; }
  uint64_t refused() const { return refused_; }
  uint64_t cancelled() const { return cancelled_; }
  uint64_t data_losses() const { return data_losses_; }

 private:
  struct Operation {
    Stage stage;
    ClientProcess* client;
    ClientCore::OperationId id = 0;
    TimePoint started;
    TimePoint due;
    bool done = false;
    bool reading = false;  // a put that has not released its view
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

  Cluster& cluster_;
  KvUniverse& universe_;
  Checker& checker_;
  const FaultInjector* faults_ = nullptr;
  std::list<OperationRef> operations_;
  std::list<Frozen> frozen_;
  Variant last_variant_ = 0;
  uint64_t started_ = 0;
  uint64_t stored_ = 0;
  uint64_t refused_ = 0;
  uint64_t cancelled_ = 0;
  uint64_t data_losses_ = 0;
};

}  // namespace tokura::sim
