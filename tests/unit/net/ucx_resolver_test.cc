#include "common/net/ucx_resolver.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/net/ucx_endpoint.h"
#include "gtest/gtest.h"

namespace tokura::net {
namespace {

// A lookup that tells when it began and ends when it is let.
struct SlowLookup {
  std::promise<void> began;
  std::promise<void> end;
  std::promise<void> destroyed;
  ~SlowLookup() { destroyed.set_value(); }
};

TEST(UcxResolver, DestructorDoesNotWaitForALookupAndCallsNobodyBack) {
  auto slow = std::make_shared<SlowLookup>();
  std::future<void> began = slow->began.get_future();
  std::future<void> destroyed = slow->destroyed.get_future();
  std::promise<void> let_it_end = std::move(slow->end);
  auto called = std::make_shared<std::atomic<bool>>(false);
  {
    UcxResolver resolver([slow, end = std::make_shared<std::future<void>>(let_it_end.get_future())](
                             const Address&) -> absl::StatusOr<SocketAddress> {
      slow->began.set_value();
      end->wait();
      return absl::UnavailableError("no such name");
    });
    slow.reset();
    resolver.Resolve(1, {"name", 1}, [called](absl::StatusOr<SocketAddress>) { *called = true; });
    began.wait();
  }
  let_it_end.set_value();
  destroyed.wait();  // the thread has ended
  EXPECT_FALSE(*called);
}

TEST(UcxResolver, ForgottenJobIsDroppedAndOthersRun) {
  std::promise<void> began;
  std::promise<void> let_it_end;
  std::shared_future<void> end = let_it_end.get_future().share();
  std::vector<std::string> looked_up;  // by the resolver's thread until the last callback
  UcxResolver resolver([&, end](const Address& address) -> absl::StatusOr<SocketAddress> {
    looked_up.push_back(address.host);
    if (looked_up.size() == 1) {
      began.set_value();
    }
    end.wait();
    return absl::UnavailableError(address.host);
  });
  resolver.Resolve(1, {"first", 1}, [](absl::StatusOr<SocketAddress>) {});
  began.get_future().wait();
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> watched = held;
  resolver.Resolve(2, {"second", 1}, [held = std::move(held)](absl::StatusOr<SocketAddress>) {});
  std::promise<void> last;
  resolver.Resolve(3, {"third", 1}, [&](absl::StatusOr<SocketAddress>) { last.set_value(); });
  resolver.Forget(2);
  EXPECT_TRUE(watched.expired());
  resolver.Forget(7);
  let_it_end.set_value();
  last.get_future().wait();
  EXPECT_EQ(looked_up, (std::vector<std::string>{"first", "third"}));
}

// A host without UCX: whatever would reach UCX fails the test.
class NoUcx final : public UcxEndpointHost {
 public:
  ucp_worker_h worker() override {
    ADD_FAILURE() << "an endpoint is created";
    return nullptr;
  }
  UcxEventLoop& loop() override {
    TOKURA_CHECK(false);
    std::abort();
  }
  const UcxTransport::Options& options() const override { return options_; }
  void Complete(Done done, absl::Status status) override { std::move(done)(std::move(status)); }
  void NeedsAttention(UcxEndpoint& endpoint) override { attention = &endpoint; }
  void Finished(UcxEndpoint&) override { ++finished; }
  void AddHandle(ucp_ep_h, UcxEndpoint&) override { ADD_FAILURE() << "an endpoint is created"; }
  void RemoveHandle(ucp_ep_h) override {}
  void CountOperations(int64_t) override {}
  UcxEndpoint* Find(uint64_t) override { return nullptr; }

  UcxEndpoint* attention = nullptr;
  int finished = 0;

 private:
  UcxTransport::Options options_;
};

TEST(UcxEndpointStart, NameThatResolvesAfterTheCloseCreatesNothing) {
  const auto address = SocketAddress::FromLiteral({"127.0.0.1", 9});
  ASSERT_TRUE(address.ok());
  NoUcx host;
  UcxEndpoint endpoint(host, 1, "name:9");
  endpoint.Close(CloseMode::kAbort);
  while (UcxEndpoint* maybe_endpoint = std::exchange(host.attention, nullptr)) {
    maybe_endpoint->Connect(address->get(), address->size);
    maybe_endpoint->FailToStart(absl::UnavailableError("no such name"));
    maybe_endpoint->Attend();
  }
  EXPECT_EQ(host.finished, 1);
  endpoint.Connect(address->get(), address->size);
  endpoint.FailToStart(absl::UnavailableError("no such name"));
  EXPECT_EQ(host.attention, nullptr);
  EXPECT_EQ(host.finished, 1);
}

}  // namespace
}  // namespace tokura::net
