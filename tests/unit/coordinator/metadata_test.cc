#include "coordinator/metadata.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sim/host.h"
#include "tests/sim/scheduler.h"

namespace tokura::coordinator {
namespace {

using ::testing::ElementsAre;

class MemoryMetadataStoreTest : public ::testing::Test {
 protected:
  void Run() { scheduler_.RunFor(std::chrono::milliseconds(1)); }
  absl::Status Store(uint64_t expected, Metadata next) {
    std::optional<absl::Status> got;
    store_->Store(expected, std::move(next), [&](absl::Status status) { got = status; });
    EXPECT_FALSE(got) << "inline";
    Run();
    return got.value();
  }
  Metadata Load() {
    std::optional<absl::StatusOr<Metadata>> got;
    store_->Load([&](absl::StatusOr<Metadata> loaded) { got = std::move(loaded); });
    EXPECT_FALSE(got) << "inline";
    Run();
    return **got;
  }

  sim::SimScheduler scheduler_{1};
  sim::SimHost host_{scheduler_, {.name = "c", .ip = "10.0.0.1"}};
  std::unique_ptr<MetadataStore> store_ = std::make_unique<MemoryMetadataStore>(host_.loop());
};

TEST_F(MemoryMetadataStoreTest, ReplacesOnlyTheEpochThatIsExpected) {
  EXPECT_EQ(Load(), Metadata());
  const Metadata first{.epoch = 3, .incarnations = {{"a", 7}}, .policy = "text"};
  EXPECT_TRUE(Store(0, first).ok());
  EXPECT_EQ(Load(), first);
  EXPECT_EQ(Store(0, {.epoch = 4, .incarnations = {}, .policy = ""}).code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(Load(), first);
  EXPECT_TRUE(Store(3, {.epoch = 4, .incarnations = {}, .policy = ""}).ok());
  EXPECT_EQ(Load().epoch, 4u);
}

TEST_F(MemoryMetadataStoreTest, AnswersInTheOrderOfTheCalls) {
  std::vector<std::string> order;
  store_->Load([&](absl::StatusOr<Metadata> loaded) {
    order.push_back("load " + std::to_string(loaded->epoch));
  });
  store_->Store(0, {.epoch = 1, .incarnations = {}, .policy = ""},
                [&](const absl::Status& status) { order.push_back(status.ok() ? "ok" : "no"); });
  store_->Store(0, {.epoch = 2, .incarnations = {}, .policy = ""},
                [&](const absl::Status& status) { order.push_back(status.ok() ? "ok" : "no"); });
  Run();
  EXPECT_THAT(order, ElementsAre("load 0", "ok", "no"));
}

TEST_F(MemoryMetadataStoreTest, WhatIsDueEndsWithTheStore) {
  auto shared = std::make_shared<int>(0);
  store_->Load([shared](absl::StatusOr<Metadata>) { ++*shared; });
  store_.reset();
  Run();
  EXPECT_EQ(*shared, 0);
  EXPECT_EQ(shared.use_count(), 1);
}

}  // namespace
}  // namespace tokura::coordinator
