// The holder's view: what is published is durable before, and a store that fails keeps the last
// state in force.

#include "coordinator/membership_holder.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"

namespace tokura::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A store of a test: in memory, shared by holders, and out of reach when told so.
struct Shelf {
  Metadata kept;
  absl::Status trouble;
  Duration delay{0};
  bool store_and_lose_the_answer = false;
  std::function<void()> before_store;
};

class TestStore final : public MetadataStore {
 public:
  TestStore(Executor& executor, Shelf& shelf) : executor_(executor), shelf_(shelf) {}
  void Load(Loaded done) override {
    absl::StatusOr<Metadata> got(shelf_.kept);
    if (!shelf_.trouble.ok()) {
      got = shelf_.trouble;
    }
    executor_.RunAfter(shelf_.delay, [done = std::move(done), got = std::move(got)]() mutable {
      done(std::move(got));
    });
  }
  void Store(uint64_t expected_epoch, Metadata next, Stored done) override {
    if (shelf_.before_store) {
      std::exchange(shelf_.before_store, nullptr)();
    }
    absl::Status status = shelf_.trouble;
    if (status.ok() && shelf_.kept.epoch != expected_epoch) {
      status = absl::AbortedError("another epoch");
    } else if (status.ok()) {
      shelf_.kept = std::move(next);
      if (std::exchange(shelf_.store_and_lose_the_answer, false)) {
        status = absl::UnavailableError("the answer was lost");
      }
    }
    executor_.RunAfter(shelf_.delay, [done = std::move(done), status]() mutable { done(status); });
  }

 private:
  Executor& executor_;
  Shelf& shelf_;
};

proto::RegisterRequest NodeRequest(const std::string& name, uint64_t incarnation, char process) {
  proto::RegisterRequest request;
  request.set_node(name);
  request.set_incarnation(incarnation);
  request.set_instance(std::string(16, process));
  request.set_starting(true);
  request.set_address("10.0.0.1:7000");
  request.set_capacity_bytes(uint64_t{1} << 30);
  return request;
}

class MembershipHolderTest : public ::testing::Test {
 protected:
  MembershipHolderTest() { SetLogLevel(LogLevel::kError); }
  ~MembershipHolderTest() override { Stop(); }

  void Start(MembershipHolder::Options options = {}) {
    options.membership.holder = "c0";
    options.membership.join_ramp = Duration(0);
    loop().Enter([&] {
      view_ = std::make_unique<MembershipHolder>(
          loop(), std::make_unique<TestStore>(loop(), shelf_), std::move(options), PlantedBugs{});
      view_->Start([this] {
        ASSERT_FALSE(inside_);
        epochs_.push_back(view_->state().epoch());
      });
    });
  }
  void Stop() {
    if (!view_) {
      return;
    }
    bool done = false;
    loop().Enter([&] { view_->Stop([&] { done = true; }); });
    const size_t changes = epochs_.size();
    scheduler_.RunFor(seconds(3));
    EXPECT_TRUE(done);
    EXPECT_EQ(epochs_.size(), changes);
    view_.reset();
    scheduler_.RunFor(seconds(3));
  }
  absl::StatusOr<uint64_t> Register(const proto::RegisterRequest& request) {
    absl::StatusOr<uint64_t> got;
    loop().Enter([&] {
      inside_ = true;
      got = view_->Register(request);
      inside_ = false;
    });
    return got;
  }
  sim::SimLoop& loop() { return host_.loop(); }

  Shelf shelf_;
  sim::SimScheduler scheduler_{1};
  sim::SimHost host_{scheduler_, {.name = "c0", .ip = "10.0.0.1"}};
  std::unique_ptr<MembershipHolder> view_;
  std::vector<uint64_t> epochs_;
  bool inside_ = false;
};

TEST_F(MembershipHolderTest, PublishesWhatTheStoreHasTaken) {
  shelf_.delay = milliseconds(10);
  Start();
  EXPECT_TRUE(view_->holder());
  EXPECT_EQ(Register(NodeRequest("a", 100, 'a')).status().code(), absl::StatusCode::kUnavailable)
      << "what was granted before is not known yet";
  scheduler_.RunFor(milliseconds(11));
  EXPECT_EQ(*Register(NodeRequest("a", 100, 'a')), 100u);
  EXPECT_THAT(epochs_, IsEmpty());
  // What changes while an epoch is being stored goes into one more.
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  Register(NodeRequest("c", 100, 'c')).IgnoreError();
  scheduler_.RunFor(milliseconds(11));
  EXPECT_THAT(epochs_, ElementsAre(1));
  EXPECT_EQ(view_->state().members_size(), 1);
  EXPECT_EQ(shelf_.kept.epoch, 2u) << "stored before it is said";
  scheduler_.RunFor(milliseconds(11));
  EXPECT_THAT(epochs_, ElementsAre(1, 2));
  EXPECT_EQ(view_->state().members_size(), 3);
  EXPECT_THAT(shelf_.kept.incarnations,
              ElementsAre(std::pair("a", 100u), std::pair("b", 100u), std::pair("c", 100u)));
}

TEST_F(MembershipHolderTest, TimePassesByItself) {
  Start();
  scheduler_.RunFor(milliseconds(1));
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  scheduler_.RunFor(milliseconds(1500));
  EXPECT_THAT(epochs_, ElementsAre(1, 2));
  EXPECT_EQ(view_->state().members(0).state(), proto::Member::SUSPECT);
  scheduler_.RunFor(seconds(10));
  EXPECT_THAT(epochs_, ElementsAre(1, 2, 3));
  EXPECT_EQ(view_->state().members_size(), 0);
}

TEST_F(MembershipHolderTest, AStoreOutOfReachKeepsTheLastState) {
  Start();
  scheduler_.RunFor(milliseconds(1));
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  scheduler_.RunFor(milliseconds(1));
  shelf_.trouble = absl::UnavailableError("gone");
  Register(NodeRequest("b", 100, 'b')).IgnoreError();
  scheduler_.RunFor(milliseconds(800));
  EXPECT_EQ(*Register(NodeRequest("c", 100, 'c')), 100u) << "it still serves";
  EXPECT_THAT(epochs_, ElementsAre(1));
  shelf_.trouble = absl::OkStatus();
  scheduler_.RunFor(milliseconds(600));
  EXPECT_GE(epochs_.size(), 2u);
  EXPECT_EQ(view_->state().members_size(), 3);
}

TEST_F(MembershipHolderTest, AnAnswerLostIsFollowedByAHigherEpoch) {
  Start();
  scheduler_.RunFor(milliseconds(1));
  shelf_.store_and_lose_the_answer = true;
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  scheduler_.RunFor(seconds(3));
  EXPECT_EQ(epochs_.front(), 2u) << "somebody may have seen 1";
  EXPECT_EQ(shelf_.kept.epoch, epochs_.back());
}

TEST_F(MembershipHolderTest, TwoHoldersNeverPublishTheSameEpoch) {
  Start();
  scheduler_.RunFor(milliseconds(1));
  shelf_.before_store = [&] { shelf_.kept.epoch = 40; };
  Register(NodeRequest("a", 100, 'a')).IgnoreError();
  scheduler_.RunFor(milliseconds(100));
  EXPECT_THAT(epochs_, IsEmpty());
  scheduler_.RunFor(seconds(3));
  EXPECT_EQ(epochs_.front(), 41u);
}

TEST_F(MembershipHolderTest, GoesOnAboveWhatTheStoreKept) {
  shelf_.kept = {
      .epoch = 7, .incarnations = {{"a", 300}}, .policy = "rules: [{tenant: x, max_error: 0.5}]"};
  Start();
  scheduler_.RunFor(milliseconds(1));
  EXPECT_EQ(*Register(NodeRequest("a", 100, 'a')), 301u);
  EXPECT_THAT(epochs_, IsEmpty()) << "the cluster forms";
  scheduler_.RunFor(milliseconds(1600));
  EXPECT_EQ(epochs_.front(), 8u);
  ASSERT_EQ(view_->state().rules_size(), 1);
  EXPECT_EQ(view_->state().rules(0).tenant(), "x");
}

TEST_F(MembershipHolderTest, ItsOwnPolicyWinsOverTheStoredOneAndIsKept) {
  shelf_.kept.policy = "rules: [{tenant: x}]";
  MembershipHolder::Options options;
  options.policy = *ParsePolicy("rules: [{tenant: y}]", "p.yaml");
  Start(std::move(options));
  scheduler_.RunFor(seconds(2));
  ASSERT_EQ(view_->state().rules_size(), 1);
  EXPECT_EQ(view_->state().rules(0).tenant(), "y");
  EXPECT_EQ(shelf_.kept.policy, "rules: [{tenant: y}]");
}

TEST_F(MembershipHolderTest, AStoredPolicyThatCannotBeReadIsAnErrorForPeople) {
  shelf_.kept.policy = "no rules";
  const uint64_t errors = LogCounts().errors;
  Start();
  scheduler_.RunFor(seconds(2));
  EXPECT_EQ(LogCounts().errors, errors + 1);
  EXPECT_THAT(epochs_, ElementsAre(1)) << "and no reason not to serve";
}

TEST_F(MembershipHolderTest, StopsAtAnyMoment) {
  shelf_.delay = milliseconds(10);
  for (int steps = 0; steps < 40; ++steps) {
    shelf_.trouble = steps % 3 == 0 ? absl::UnavailableError("gone") : absl::OkStatus();
    Start();
    for (int i = 0; i < steps; ++i) {
      scheduler_.Step();
      Register(NodeRequest("a", 100 + static_cast<uint64_t>(i), 'a')).IgnoreError();
    }
    Stop();
  }
}

}  // namespace
}  // namespace tokura::coordinator
