#include "tests/integration/paused_client.h"

#include <utility>

#include <gtest/gtest.h>

#include "common/check.h"
#include "common/random.h"

namespace tokura::integration {

class PausingPool::PausedJob final : public Job {
 public:
  PausedJob(PausingPool& pool, std::unique_ptr<Job> job) : pool_(pool), job_(std::move(job)) {}
  ~PausedJob() override {
    job_.reset();
    pool_.JobEnded();
  }
  Progress Step() override {
    pool_.BeforeStep();
    return job_->Step();
  }

 private:
  PausingPool& pool_;
  std::unique_ptr<Job> job_;
};

void PausingPool::Add(std::unique_ptr<Job> job) {
  {
    const std::lock_guard lock(mutex_);
    ++jobs_;
  }
  pool_->Add(std::make_unique<PausedJob>(*this, std::move(job)));
}

void PausingPool::PauseAfter(size_t steps) {
  const std::lock_guard lock(mutex_);
  armed_ = true;
  steps_left_ = steps;
}

bool PausingPool::paused() const {
  const std::lock_guard lock(mutex_);
  return held_ > 0;
}

void PausingPool::Resume() {
  {
    const std::lock_guard lock(mutex_);
    armed_ = false;
  }
  resumed_.notify_all();
}

bool PausingPool::idle() const {
  const std::lock_guard lock(mutex_);
  return jobs_ == 0;
}

void PausingPool::BeforeStep() {
  std::unique_lock lock(mutex_);
  if (armed_ && steps_left_ > 0) {
    --steps_left_;
    return;
  }
  ++held_;
  resumed_.wait(lock, [this] { return !armed_; });
  --held_;
}

void PausingPool::JobEnded() {
  const std::lock_guard lock(mutex_);
  --jobs_;
}

PausedClient::PausedClient(ClientOptions options) {
  options.inline_decode_bytes = 0;  // Every decode goes through the pool.
  auto context = net::UcxContext::Create({});
  TOKURA_CHECK(context.ok());
  context_ = std::move(*context);
  auto transport = net::UcxTransport::Create(*context_, {});
  TOKURA_CHECK(transport.ok());
  transport_ = std::move(*transport);
  thread_ = std::thread([this] { transport_->Run(); });
  std::promise<absl::Status> ready;
  Run([&] {
    auto core = ClientCore::Create({*transport_, pool_, SystemRandom(), nullptr}, options);
    TOKURA_CHECK(core.ok());
    core_ = std::move(*core);
    core_->WhenReady(transport_->executor().Now() + std::chrono::seconds(20),
                     [&ready](absl::Status status) { ready.set_value(std::move(status)); });
  });
  const absl::Status status = ready.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

PausedClient::~PausedClient() {
  pool_.Resume();
  std::promise<void> down;
  transport_->executor().Post([&] {
    core_->Shutdown([&] {
      core_.reset();
      down.set_value();
    });
  });
  down.get_future().wait();
  transport_->Stop();
  thread_.join();
}

void PausedClient::Run(Task task) {
  std::promise<void> done;
  transport_->executor().Post([&] {
    task();
    done.set_value();
  });
  done.get_future().wait();
}

PausedClient::Operation PausedClient::StartGet(const NamespaceRef& space, const Match& match,
                                               const SequenceView& view,
                                               const GetOptions& options) {
  Operation operation;
  std::promise<GetResult> got;
  operation.got = got.get_future();
  Run([&] {
    operation.id = core_->Get(
        space, match, view, options,
        [got = std::move(got)](GetResult result) mutable { got.set_value(std::move(result)); });
  });
  return operation;
}

PausedClient::Operation PausedClient::StartPut(const NamespaceRef& space, const TokenChain& chain,
                                               const SequenceView& view,
                                               const PutOptions& options) {
  Operation operation;
  std::promise<void> released;
  std::promise<PutResult> put;
  operation.released = released.get_future();
  operation.put = put.get_future();
  Run([&] {
    operation.id = core_->Put(
        space, chain, view, options,
        [released = std::move(released)]() mutable { released.set_value(); },
        [put = std::move(put)](PutResult result) mutable { put.set_value(std::move(result)); });
  });
  return operation;
}

void PausedClient::Cancel(ClientCore::OperationId id) {
  Run([&] { core_->Cancel(id); });
}

}  // namespace tokura::integration
