#pragma once

// A real client whose codec jobs stop at a pause point: between two steps of the job that a test
// names by how many steps come before.

#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <thread>

#include "common/executor.h"
#include "common/net/ucx_transport.h"
#include "tokura/client_core.h"

namespace tokura::integration {

// One thread for jobs, with a pause point before every step. Thread-safe.
class PausingPool final : public WorkerPool {
 public:
  PausingPool() : pool_(MakeThreadPool(1, "paused")) {}
  ~PausingPool() override { Resume(); }

  void Add(std::unique_ptr<Job> job) override;
  // Let `steps` more steps happen, and hold the thread before the next one until Resume.
  void PauseAfter(size_t steps);
  bool paused() const;
  void Resume();
  // No job is waiting, held or running.
  bool idle() const;

 private:
  class PausedJob;
  void BeforeStep();
  void JobEnded();

  mutable std::mutex mutex_;
  std::condition_variable resumed_;
  bool armed_ = false;
  size_t steps_left_ = 0;
  size_t held_ = 0;
  size_t jobs_ = 0;
  std::unique_ptr<WorkerPool> pool_;  // the last member: its thread uses the others
};

// ClientCore over UCX with a thread of its own and a PausingPool. Connected when constructed, or
// the test has failed. Thread-safe.
class PausedClient {
 public:
  struct Operation {
    ClientCore::OperationId id = 0;
    std::future<void> released;  // puts only
    std::future<GetResult> got;
    std::future<PutResult> put;
  };

  explicit PausedClient(ClientOptions options);
  ~PausedClient();

  PausingPool& pool() { return pool_; }
  Operation StartGet(const NamespaceRef& space, const Match& match, const SequenceView& view,
                     const GetOptions& options);
  Operation StartPut(const NamespaceRef& space, const TokenChain& chain, const SequenceView& view,
                     const PutOptions& options);
  void Cancel(ClientCore::OperationId id);

 private:
  // Run `task` on the client's thread and wait until it has returned.
  void Run(Task task);

  PausingPool pool_;
  std::unique_ptr<net::UcxContext> context_;
  std::unique_ptr<net::UcxTransport> transport_;
  std::unique_ptr<ClientCore> core_;  // on thread_ only
  std::thread thread_;
};

}  // namespace tokura::integration
