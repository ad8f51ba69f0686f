// What the block store promises, one behaviour per test.

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "cache-node/arena.h"
#include "tests/unit/node/store_testing.h"

namespace tokura::node {
namespace {

using kernels::Fidelity;

constexpr uint64_t kMiB = uint64_t{1} << 20;

class StoreTest : public ::testing::Test {
 protected:
  void SetUp() override { Reset({}); }
  void TearDown() override {
    if (store_ != nullptr) {
      EXPECT_TRUE(store_->CheckInvariants().ok()) << store_->CheckInvariants();
    }
  }
  void Reset(StoreOptions options, PlantedBugs bugs = {}) {
    if (options.host_bytes == StoreOptions{}.host_bytes) {
      options.host_bytes = 2 * kMiB;
    }
    store_ = MakeStore(options, bugs);
  }
  CommitResult Put(const BlockPut& put, double seconds = 1) {
    const absl::StatusOr<CommitResult> result = PutBlock(*store_, put, At(seconds));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : CommitResult::kWaiting;
  }
  // A chain of `count` blocks with keys first, first + 1, …
  void PutChain(uint64_t first, uint32_t count, uint64_t bytes, double seconds = 1) {
    for (uint32_t i = 0; i < count; ++i) {
      BlockPut put;
      put.key = first + i;
      put.parent = i == 0 ? -1 : static_cast<int64_t>(first + i - 1);
      put.position = i;
      put.bytes = bytes;
      Put(put, seconds);
    }
  }
  std::vector<BlockKey> Keys(uint64_t first, uint32_t count) {
    std::vector<BlockKey> keys;
    for (uint32_t i = 0; i < count; ++i) {
      keys.push_back(Key(first + i));
    }
    return keys;
  }
  size_t Run(uint64_t first, uint32_t count, const AcceptRule& accept = {}) {
    return store_->Find(Space(), Keys(first, count), accept, Touch::kNo, At(1)).size();
  }
  uint64_t Evicted(EvictReason reason) {
    return store_->counters().evicted_forms[static_cast<size_t>(reason)];
  }

  std::unique_ptr<BlockStore> store_;
};

TEST_F(StoreTest, FindsWhatWasPutAndPinsItsBytes) {
  const BlockPut put{.key = 5, .bytes = 12'345};
  EXPECT_EQ(Put(put), CommitResult::kVisible);
  const std::vector<FormInfo> found = store_->Find(Space(), Keys(5, 1), {}, Touch::kNo, At(2));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].content_id, Content(1));
  EXPECT_EQ(store_->CodecText(found[0].codec), "kivi4");
  EXPECT_EQ(found[0].stored_bytes, 12'345u);
  EXPECT_EQ(found[0].logical_bytes, 2u * 4 * 128 * 64 * 2);
  EXPECT_DOUBLE_EQ(found[0].error_mean, 0.1);
  const std::vector<FormPin> pins = PinKeys(*store_, Keys(5, 1), At(2));
  ASSERT_EQ(pins.size(), 1u);
  EXPECT_EQ(pins[0].part({0, 0}).size(), 12'345u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pins[0].part({0, 0}).data()) % 64, 0u);
  EXPECT_TRUE(pins[0].part({1, 0}).empty());
  EXPECT_TRUE(BytesAreRight(pins[0], 5, 1));
  EXPECT_EQ(store_->stats().pinned_forms, 1u);
  EXPECT_EQ(store_->stats().pinned_bytes, 12'345u);
}

TEST_F(StoreTest, HoleEndsARun) {
  PutChain(1, 6, 1000);
  ASSERT_TRUE(store_->Remove(Space(), Key(4), At(1)));
  EXPECT_EQ(Run(1, 6), 3u);
  EXPECT_EQ(PinKeys(*store_, Keys(1, 6), At(1)).size(), 3u);
  const std::vector<FormPin> each = PinKeys(*store_, Keys(1, 6), At(1), Gaps::kKeep);
  ASSERT_EQ(each.size(), 6u);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(each[i].valid(), i != 3) << i;
  }
}

TEST_F(StoreTest, LongRunsAreFoundWhole) {
  PutChain(1, 1000, 500);
  EXPECT_EQ(Run(1, 1000), 1000u);
  EXPECT_EQ(Run(1, 1200), 1000u);
  EXPECT_EQ(PinKeys(*store_, Keys(1, 1200), At(1)).size(), 1000u);
  EXPECT_EQ(store_->stats().pinned_forms, 0u);
}

TEST_F(StoreTest, AnotherNamespaceMissesEvenUnderTheSameKey) {
  Put({.key = 1, .content = 1, .space = 1});
  EXPECT_FALSE(Has(*store_, 1, 2));
  Put({.key = 1, .content = 2, .space = 2});
  EXPECT_EQ(store_->Forms(Space(1), Key(1))[0].content_id, Content(1));
  EXPECT_EQ(store_->Forms(Space(2), Key(1))[0].content_id, Content(2));
  EXPECT_TRUE(store_->Remove(Space(1), Key(1), At(1)));
  EXPECT_TRUE(Has(*store_, 1, 2));
}

TEST_F(StoreTest, BlockBecomesVisibleWithItsLastPartWhateverTheOrder) {
  BlockPut put{.key = 1, .group_mask = 0b101, .shards = 2};
  for (const PartId part : {PartId{2, 1}, PartId{0, 0}, PartId{2, 0}}) {
    EXPECT_EQ(*PutPart(*store_, put, part, At(1)), CommitResult::kWaiting);
    EXPECT_FALSE(Has(*store_, 1));
  }
  EXPECT_EQ(store_->stats().incomplete_blocks, 1u);
  EXPECT_EQ(*PutPart(*store_, put, {0, 1}, At(1)), CommitResult::kVisible);
  const std::vector<FormPin> pins = PinKeys(*store_, Keys(1, 1), At(1));
  ASSERT_EQ(pins.size(), 1u);
  EXPECT_TRUE(BytesAreRight(pins[0], 1, 1));
  EXPECT_EQ(pins[0].info().stored_bytes, 4 * put.bytes);
  EXPECT_EQ(store_->stats().incomplete_blocks, 0u);
}

TEST_F(StoreTest, ErrorsOfShardsAddAndGroupsStandSideBySide) {
  BlockPut put{.key = 1, .group_mask = 0b11, .shards = 2};
  const double errors[2][2] = {{0.01, 0.03}, {0.16, 0.0}};  // group, shard; sizes are 1
  for (uint8_t group = 0; group < 2; ++group) {
    for (uint8_t shard = 0; shard < 2; ++shard) {
      auto room = store_->Reserve(RequestFor(put, {group, shard}), At(1));
      ASSERT_TRUE(room.ok());
      kernels::PartInfo info = InfoFor(put, {group, shard});
      info.error.layers.assign(1, {errors[group][shard], 1.0});
      ASSERT_TRUE(store_->Commit(std::move(*room), info, At(1)).ok());
    }
  }
  const FormInfo form = store_->Forms(Space(), Key(1))[0];
  const double first = std::sqrt(0.04 / 2), second = std::sqrt(0.16 / 2);
  EXPECT_DOUBLE_EQ(form.error_mean, (first + second) / 2);
  EXPECT_DOUBLE_EQ(form.error_max, second);
}

TEST_F(StoreTest, SetsOfTwoWritersAreNeverMixed) {
  const BlockPut one{.key = 1, .content = 1, .shards = 2};
  const BlockPut two{.key = 1, .content = 2, .shards = 2};
  ASSERT_EQ(*PutPart(*store_, one, {0, 0}, At(1)), CommitResult::kWaiting);
  ASSERT_EQ(*PutPart(*store_, two, {0, 1}, At(1)), CommitResult::kWaiting);
  EXPECT_FALSE(Has(*store_, 1));
  ASSERT_EQ(*PutPart(*store_, two, {0, 0}, At(1)), CommitResult::kVisible);
  EXPECT_TRUE(BytesAreRight(PinKeys(*store_, Keys(1, 1), At(1))[0], 1, 2));
  // The slower writer is told that the block is there, and its set goes in the end.
  EXPECT_EQ(PutPart(*store_, one, {0, 1}, At(1)).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(store_->Forms(Space(), Key(1)).size(), 1u);
  store_->Maintain(At(100));
  EXPECT_EQ(store_->stats().incomplete_forms, 0u);
}

TEST_F(StoreTest, FirstCompleteFormOfACodecWinsAndTheOthersSpaceReturns) {
  const BlockPut one{.key = 1, .content = 1};
  const BlockPut two{.key = 1, .content = 2};
  auto room_one = store_->Reserve(RequestFor(one, {}), At(1));
  auto room_two = store_->Reserve(RequestFor(two, {}), At(1));
  ASSERT_TRUE(room_one.ok() && room_two.ok());
  EXPECT_EQ(*store_->Commit(std::move(*room_two), InfoFor(two, {}), At(1)), CommitResult::kVisible);
  const uint64_t used_both = store_->stats().used_bytes;
  EXPECT_EQ(*store_->Commit(std::move(*room_one), InfoFor(one, {}), At(1)),
            CommitResult::kDuplicate);
  EXPECT_EQ(store_->stats().used_bytes, used_both / 2);
  EXPECT_EQ(store_->Forms(Space(), Key(1))[0].content_id, Content(2));
  EXPECT_EQ(store_->counters().commits_duplicate, 1u);
}

TEST_F(StoreTest, SecondPutOfTheSamePartIsIdempotent) {
  const BlockPut put{.key = 1, .shards = 2};
  ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  EXPECT_EQ(PutPart(*store_, put, {0, 0}, At(1)).status().code(), absl::StatusCode::kAlreadyExists);
  auto a = store_->Reserve(RequestFor(put, {0, 1}), At(1));
  auto b = store_->Reserve(RequestFor(put, {0, 1}), At(1));
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*store_->Commit(std::move(*b), InfoFor(put, {0, 1}), At(1)), CommitResult::kVisible);
  EXPECT_EQ(*store_->Commit(std::move(*a), InfoFor(put, {0, 1}), At(1)), CommitResult::kDuplicate);
}

TEST_F(StoreTest, FormsOfSeveralCodecsStandSideBySideAndTheBestAcceptableIsChosen) {
  Put({.key = 1, .content = 1, .codec = "kivi4", .bytes = 1000, .epsilon = 0.1});
  Put({.key = 1, .content = 2, .codec = "int8", .bytes = 2000, .epsilon = 0.02});
  Put({.key = 1, .content = 3, .codec = "raw", .bytes = 4000, .epsilon = 0});
  Put({.key = 1, .content = 4, .codec = "kivi2", .bytes = 500, .epsilon = 0.01, .proxy = true});
  const auto best = [&](const AcceptRule& accept) -> std::string {
    const auto found = store_->Find(Space(), Keys(1, 1), accept, Touch::kNo, At(1));
    return found.empty() ? "none" : std::string(store_->CodecText(found[0].codec));
  };
  EXPECT_EQ(store_->Forms(Space(), Key(1)).size(), 4u);
  AcceptRule accept;
  EXPECT_EQ(best(accept), "raw");
  accept.codecs = {"tc", "kivi4", "raw"};
  EXPECT_EQ(best(accept), "kivi4");
  accept.max_error = 0.05;
  EXPECT_EQ(best(accept), "raw");
  accept.codecs = {"kivi4"};
  EXPECT_EQ(best(accept), "none");
  accept.codecs = {"kivi2", "int8"};
  EXPECT_EQ(best(accept), "int8");
  accept.accept_proxy_error = true;
  EXPECT_EQ(best(accept), "kivi2");
  accept.max_error = 0;
  EXPECT_EQ(best(accept), "none");
  accept.codecs = {};
  EXPECT_EQ(best(accept), "raw");
  accept.required_groups = 2;
  EXPECT_EQ(best(accept), "none");
}

TEST_F(StoreTest, ExactMeansExactNotAnErrorOfZero) {
  BlockPut put{.key = 1, .epsilon = 0.1};
  auto room = store_->Reserve(RequestFor(put, {}), At(1));
  kernels::PartInfo info = InfoFor(put, {});
  info.error.layers.assign(2, {0.0, 1.0});
  ASSERT_TRUE(store_->Commit(std::move(*room), info, At(1)).ok());
  AcceptRule exact;
  exact.max_error = 0;
  EXPECT_EQ(Run(1, 1, exact), 0u);
}

TEST_F(StoreTest, UnmeasuredAndImpossibleErrorsCountAsInfinite) {
  const kernels::ErrorRecord::Layer records[] = {{1.0, 0.0}, {-1.0, 1.0}, {std::nan(""), 1.0}};
  uint64_t key = 1;
  for (const auto& record : records) {
    BlockPut put{.key = key++};
    auto room = store_->Reserve(RequestFor(put, {}), At(1));
    kernels::PartInfo info = InfoFor(put, {});
    info.error.layers.assign(2, record);
    ASSERT_TRUE(store_->Commit(std::move(*room), info, At(1)).ok());
  }
  BlockPut put{.key = key};
  auto room = store_->Reserve(RequestFor(put, {}), At(1));
  kernels::PartInfo info = InfoFor(put, {});
  info.error.queries = 0;
  ASSERT_TRUE(store_->Commit(std::move(*room), info, At(1)).ok());
  AcceptRule accept;
  accept.max_error = 1e6;
  for (uint64_t k = 1; k <= key; ++k) {
    EXPECT_EQ(Run(k, 1, accept), 0u) << k;
    EXPECT_EQ(Run(k, 1), 1u) << k;
  }
}

TEST_F(StoreTest, SummariesAreOnlyForThoseWhoAllowThem) {
  BlockPut put{.key = 1};
  auto room = store_->Reserve(RequestFor(put, {}), At(1));
  kernels::PartInfo info = InfoFor(put, {});
  info.fidelity = Fidelity::kSummary;
  ASSERT_TRUE(store_->Commit(std::move(*room), info, At(1)).ok());
  AcceptRule accept;
  EXPECT_EQ(Run(1, 1, accept), 0u);
  accept.allow_summary = true;
  EXPECT_EQ(Run(1, 1, accept), 1u);
}

TEST_F(StoreTest, PinsTheContentThatWasAskedFor) {
  Put({.key = 1, .content = 1, .codec = "kivi4"});
  Put({.key = 1, .content = 2, .codec = "int8"});
  const std::vector<BlockKey> keys = Keys(1, 1);
  for (const uint64_t content : {1, 2, 3}) {
    const std::vector<ContentId> ids = {Content(content)};
    PinQuery query;
    query.fingerprint = Space();
    query.keys = keys;
    query.content_ids = ids;
    const std::vector<FormPin> pins = store_->Pin(query, At(1));
    ASSERT_EQ(pins.size(), content == 3 ? 0u : 1u);
    if (!pins.empty()) {
      EXPECT_TRUE(BytesAreRight(pins[0], 1, content));
    }
  }
}

TEST_F(StoreTest, RefusesRequestsThatMakeNoSense) {
  const BlockPut good{.key = 1, .group_mask = 0b10, .shards = 2};
  const auto code = [&](auto change) {
    ReserveRequest request = RequestFor(good, {1, 1});
    change(request);
    return store_->Reserve(request, At(1)).status().code();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](ReserveRequest&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(code([](ReserveRequest& r) { r.bytes = 0; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.bytes = (64 << 20) + 1; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.part.group = 0; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.part.group = 255; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.part.shard = 2; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.group_mask = 0; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.group_mask = 0x102; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.shards = 257; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.key = {}; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.content_id = {}; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.parent = r.key; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.codec = ""; }), kInvalid);
  auto held = store_->Reserve(RequestFor(good, {1, 1}), At(1));
  EXPECT_EQ(code([](ReserveRequest& r) { r.shards = 3; }), kInvalid);
  EXPECT_EQ(code([](ReserveRequest& r) { r.bytes = 3 * kMiB; }),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(StoreTest, CommitOfSomethingElseIsRefusedAndItsSpaceReturns) {
  const BlockPut put{.key = 1};
  const auto code = [&](auto change) {
    auto room = store_->Reserve(RequestFor(put, {}), At(1));
    kernels::PartInfo info = InfoFor(put, {});
    change(info);
    return store_->Commit(std::move(*room), info, At(1)).status().code();
  };
  const auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code([](kernels::PartInfo& i) { i.identity.key = Key(2); }), kInvalid);
  EXPECT_EQ(code([](kernels::PartInfo& i) { i.identity.fingerprint = Space(2); }), kInvalid);
  EXPECT_EQ(code([](kernels::PartInfo& i) { i.identity.content_id = Content(2); }), kInvalid);
  EXPECT_EQ(code([](kernels::PartInfo& i) { i.identity.part.shard = 1; }), kInvalid);
  EXPECT_EQ(code([](kernels::PartInfo& i) { i.codec = "raw"; }), kInvalid);
  EXPECT_EQ(code([](kernels::PartInfo& i) { ++i.part_bytes; }), kInvalid);
  EXPECT_FALSE(Has(*store_, 1));
  EXPECT_EQ(store_->stats().used_bytes, 0u);
  EXPECT_EQ(store_->counters().commits_refused, 6u);
}

TEST_F(StoreTest, AbortedReservationLeavesNothing) {
  {
    const auto room =
        store_->Reserve(RequestFor({.key = 1, .parent = 0, .position = 1}, {}), At(1));
    ASSERT_TRUE(room.ok());
    EXPECT_EQ(store_->stats().reservations, 1u);
    EXPECT_EQ(store_->stats().incomplete_forms, 1u);
  }
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.reservations, 0u);
  EXPECT_EQ(stats.incomplete_forms, 0u);
  EXPECT_EQ(stats.used_bytes, 0u);
  EXPECT_EQ(stats.reserved_bytes, 0u);
}

TEST_F(StoreTest, OneOfTwoWritersDiesAndTheSpaceReturns) {
  const BlockPut put{.key = 1, .shards = 2};
  ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  store_->Maintain(At(60.9));
  EXPECT_EQ(store_->stats().incomplete_forms, 1u);
  store_->Maintain(At(61));
  EXPECT_EQ(store_->stats().incomplete_forms, 0u);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
  EXPECT_EQ(Evicted(EvictReason::kIncomplete), 1u);
  EXPECT_FALSE(Has(*store_, 1));
}

TEST_F(StoreTest, WriteThatOutlivesItsBlockIsRefusedAndOnlyThenFreed) {
  const BlockPut put{.key = 1, .shards = 2, .bytes = 100'000};
  ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  auto late = store_->Reserve(RequestFor(put, {0, 1}), At(55));
  ASSERT_TRUE(late.ok());
  store_->Maintain(At(61));
  EXPECT_TRUE(late->expired());
  // The transport may still write: its extent stays, that of the stored part is gone.
  EXPECT_GT(store_->stats().used_bytes, 100'000u);
  EXPECT_LT(store_->stats().used_bytes, 101'000u);
  EXPECT_EQ(store_->Commit(std::move(*late), InfoFor(put, {0, 1}), At(62)).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_F(StoreTest, OverdueReservationsAreReportedUntilTheyEnd) {
  auto one = store_->Reserve(RequestFor({.key = 1, .owner = 9}, {}), At(1));
  auto two = store_->Reserve(RequestFor({.key = 2, .owner = 3}, {}), At(2));
  EXPECT_TRUE(store_->Maintain(At(10.9)).overdue_owners.empty());
  EXPECT_FALSE(one->expired());
  EXPECT_EQ(store_->Maintain(At(11)).overdue_owners, std::vector<uint64_t>{9});
  EXPECT_TRUE(one->expired());
  EXPECT_EQ(store_->Maintain(At(12)).overdue_owners, (std::vector<uint64_t>{3, 9}));
  EXPECT_EQ(store_->Commit(std::move(*one), InfoFor({.key = 1}, {}), At(12)).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(store_->Maintain(At(13)).overdue_owners, std::vector<uint64_t>{3});
  two->Abort();
  EXPECT_TRUE(store_->Maintain(At(14)).overdue_owners.empty());
  EXPECT_EQ(store_->counters().reservations_overdue, 2u);
  EXPECT_EQ(store_->stats().used_bytes, 0u);
}

TEST_F(StoreTest, ProgressOfAnOwnerKeepsAllOfItsReservations) {
  auto one = store_->Reserve(RequestFor({.key = 1, .owner = 9}, {}), At(1));
  auto two = store_->Reserve(RequestFor({.key = 2, .owner = 9}, {}), At(1));
  auto other = store_->Reserve(RequestFor({.key = 3, .owner = 3}, {}), At(1));
  store_->MarkProgress(9, At(9));
  store_->MarkProgress(77, At(9));
  EXPECT_EQ(store_->Maintain(At(18.75)).overdue_owners, std::vector<uint64_t>{3});
  EXPECT_FALSE(one->expired());
  // A part that is complete is progress as well.
  EXPECT_EQ(*store_->Commit(std::move(*two), InfoFor({.key = 2}, {}), At(18.75)),
            CommitResult::kVisible);
  EXPECT_EQ(store_->Maintain(At(28.5)).overdue_owners, std::vector<uint64_t>{3});
  EXPECT_EQ(store_->Maintain(At(28.75)).overdue_owners, (std::vector<uint64_t>{3, 9}));
  store_->MarkProgress(9, At(29));
  EXPECT_TRUE(one->expired()) << "what is overdue stays so";
  EXPECT_EQ(store_->Maintain(At(29)).overdue_owners, (std::vector<uint64_t>{3, 9}));
}

TEST_F(StoreTest, NoProgressKeepsAReservationForEver) {
  auto room = store_->Reserve(RequestFor({.key = 1, .owner = 9}, {}), At(1));
  for (int second = 5; second <= 60; second += 5) {
    store_->MarkProgress(9, At(second));
    EXPECT_TRUE(store_->Maintain(At(second)).overdue_owners.empty()) << second;
  }
  EXPECT_EQ(store_->Maintain(At(61)).overdue_owners, std::vector<uint64_t>{9});
  EXPECT_TRUE(room->expired());
}

TEST_F(StoreTest, PlantedLateWriteGetsThrough) {
  PlantedBugs bugs;
  bugs.accept_late_write = true;
  Reset({}, bugs);
  const BlockPut put{.key = 1};
  auto room = store_->Reserve(RequestFor(put, {}), At(1));
  store_->Abandon(Space(), Key(1), Content(1), At(2));
  EXPECT_EQ(*store_->Commit(std::move(*room), InfoFor(put, {}), At(3)), CommitResult::kVisible);
  EXPECT_TRUE(Has(*store_, 1));
}

TEST_F(StoreTest, AbandonedPutNeverBecomesVisible) {
  const BlockPut put{.key = 1, .shards = 2};
  ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  auto room = store_->Reserve(RequestFor(put, {0, 1}), At(1));
  store_->Abandon(Space(), Key(1), Content(1), At(2));
  EXPECT_TRUE(room->expired());
  EXPECT_EQ(store_->Commit(std::move(*room), InfoFor(put, {0, 1}), At(3)).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_FALSE(Has(*store_, 1));
  EXPECT_EQ(store_->stats().used_bytes, 0u);
  Put({.key = 1, .content = 2});
  store_->Abandon(Space(), Key(1), Content(2), At(4));
  EXPECT_TRUE(Has(*store_, 1));
}

TEST_F(StoreTest, RemoveHidesAtOnceAndFreesWithTheLastPin) {
  Put({.key = 1, .bytes = 50'000});
  std::vector<FormPin> pins = PinKeys(*store_, Keys(1, 1), At(1));
  FormPin clone = pins[0].Clone();
  EXPECT_TRUE(store_->Remove(Space(), Key(1), At(1)));
  EXPECT_FALSE(store_->Remove(Space(), Key(1), At(1)));
  EXPECT_FALSE(Has(*store_, 1));
  EXPECT_TRUE(PinKeys(*store_, Keys(1, 1), At(1)).empty());
  EXPECT_EQ(store_->stats().doomed_forms, 1u);
  // A new put of the key does not disturb the old reader.
  Put({.key = 1, .content = 2, .bytes = 50'000});
  EXPECT_TRUE(BytesAreRight(clone, 1, 1));
  pins.clear();
  EXPECT_GT(store_->stats().used_bytes, 100'000u);
  EXPECT_TRUE(BytesAreRight(clone, 1, 1));
  clone.Reset();
  EXPECT_LT(store_->stats().used_bytes, 51'000u);
  EXPECT_EQ(store_->stats().doomed_forms, 0u);
  EXPECT_TRUE(BytesAreRight(PinKeys(*store_, Keys(1, 1), At(1))[0], 1, 2));
}

TEST_F(StoreTest, RemoveDamagedTakesExactlyThePinnedForm) {
  StoreOptions options;
  options.change_log_max = 16;
  Reset(options);
  Put({.key = 1, .codec = "raw"});
  Put({.key = 1, .content = 2, .codec = "kivi4"});
  std::vector<FormPin> pins = store_->PinForms(Space(), Key(1), At(1));
  ASSERT_EQ(pins.size(), 2u);
  const uint64_t before = store_->change_position();
  EXPECT_TRUE(store_->RemoveDamaged(pins[0], At(1)));
  EXPECT_FALSE(store_->RemoveDamaged(pins[0], At(1))) << "it is gone already";
  EXPECT_GT(store_->change_position(), before) << "coordinators hear of it";
  ASSERT_EQ(store_->Forms(Space(), Key(1)).size(), 1u);
  EXPECT_EQ(store_->Forms(Space(), Key(1))[0], pins[1].info());
  EXPECT_EQ(Evicted(EvictReason::kDamaged), 1u);
  // A newer form of the same codec is not the one that was pinned.
  const std::string codec(store_->CodecText(pins[0].info().codec));
  EXPECT_EQ(Put({.key = 1, .content = 3, .codec = codec}), CommitResult::kVisible);
  EXPECT_FALSE(store_->RemoveDamaged(pins[0], At(1)));
  EXPECT_EQ(store_->Forms(Space(), Key(1)).size(), 2u);
  EXPECT_EQ(store_->stats().doomed_forms, 1u);
  pins.clear();
  EXPECT_EQ(store_->stats().doomed_forms, 0u);
  EXPECT_EQ(store_->stats().pinned_forms, 0u);
  EXPECT_TRUE(store_->PinForms(Space(), Key(2), At(1)).empty());
}

TEST_F(StoreTest, RemoveExpiresPutsThatAreUnderWay) {
  auto room = store_->Reserve(RequestFor({.key = 1}, {}), At(1));
  EXPECT_FALSE(store_->Remove(Space(), Key(1), At(1)));
  EXPECT_TRUE(room->expired());
}

TEST_F(StoreTest, EvictsTailsFirstSoThatNoChainHasAHole) {
  StoreOptions options;
  options.host_bytes = 4 * kMiB;
  Reset(options);
  for (uint64_t chain = 0; chain < 60; ++chain) {
    PutChain(chain * 100, 10, 20'000, 1 + static_cast<double>(chain));
    store_->Maintain(At(1 + static_cast<double>(chain)));
    for (uint64_t other = 0; other <= chain; ++other) {
      // What is left is a prefix.
      const size_t run = Run(other * 100, 10);
      for (uint64_t i = run; i < 10; ++i) {
        ASSERT_FALSE(Has(*store_, other * 100 + i)) << other << " " << i;
      }
    }
  }
  EXPECT_GT(store_->counters().evicted_forms[static_cast<size_t>(EvictReason::kWatermark)], 100u);
  EXPECT_EQ(Run(5900, 10), 10u);
}

TEST_F(StoreTest, ChildrenThatComeBeforeTheirParentAreLinkedToIt) {
  Reset({.host_bytes = 1 * kMiB});
  Put({.key = 2, .parent = 1, .position = 1, .bytes = 100'000}, 2);
  Put({.key = 1, .bytes = 100'000}, 1);
  for (uint64_t key = 10; key < 18; ++key) {
    Put({.key = key, .bytes = 100'000}, 3);
  }
  Put({.key = 20, .bytes = 100'000}, 4);
  EXPECT_TRUE(Has(*store_, 1));
  EXPECT_FALSE(Has(*store_, 2));
}

TEST_F(StoreTest, TouchedChainsOutliveOthers) {
  Reset({.host_bytes = 4 * kMiB});
  PutChain(100, 10, 20'000, 1);
  PutChain(200, 10, 20'000, 2);
  const std::vector<BlockKey> hot = Keys(100, 10);
  for (uint64_t chain = 3; chain < 100; ++chain) {
    store_->Find(Space(), hot, {}, Touch::kYes, At(static_cast<double>(chain)));
    PutChain(chain * 100, 10, 20'000, static_cast<double>(chain));
    store_->Maintain(At(static_cast<double>(chain)));
  }
  EXPECT_EQ(Run(100, 10), 10u);
  EXPECT_EQ(Run(200, 10), 0u);
}

TEST_F(StoreTest, DenserFormsOutliveSparseOnesOfTheSameAge) {
  Reset({.host_bytes = 8 * kMiB});
  for (uint64_t i = 0; i < 40; ++i) {
    Put({.key = i, .codec = "raw", .bytes = 100'000, .epsilon = 0});
    Put({.key = 100 + i, .codec = "kivi4", .bytes = 28'000});
  }
  for (uint64_t i = 0; i < 40; ++i) {
    Put({.key = 1000 + i, .codec = "raw", .bytes = 100'000, .epsilon = 0}, 2);
    store_->Maintain(At(2));
  }
  uint64_t raw = 0, dense = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    raw += Has(*store_, i) ? 1 : 0;
    dense += Has(*store_, 100 + i) ? 1 : 0;
  }
  EXPECT_EQ(dense, 40u);
  EXPECT_LT(raw, 30u);
}

TEST_F(StoreTest, WhatNobodyUsesGoesInTheEndHoweverDense) {
  Reset({.host_bytes = 2 * kMiB});
  Put({.key = 1, .codec = "kivi4", .bytes = 28'000}, 1);
  for (uint64_t key = 100; key < 300; ++key) {
    Put({.key = key, .codec = "raw", .bytes = 100'000, .epsilon = 0}, static_cast<double>(key));
  }
  EXPECT_FALSE(Has(*store_, 1));
  EXPECT_TRUE(Has(*store_, 299));
}

TEST_F(StoreTest, OfABlocksFormsTheLargestGoesFirst) {
  Reset({.host_bytes = 1 * kMiB});
  Put({.key = 1, .codec = "raw", .bytes = 100'000, .epsilon = 0}, 1);
  Put({.key = 1, .codec = "kivi4", .bytes = 30'000}, 1);
  for (uint64_t key = 10; key < 20; ++key) {
    Put({.key = key, .bytes = 100'000}, 2);
  }
  const std::vector<FormInfo> left = store_->Forms(Space(), Key(1));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(store_->CodecText(left[0].codec), "kivi4");
}

TEST_F(StoreTest, OrphansGoBeforeAnythingElse) {
  Reset({.host_bytes = 4 * kMiB});
  PutChain(100, 5, 20'000, 1);
  PutChain(200, 5, 20'000, 5);
  store_->Remove(Space(), Key(201), At(5));
  while (store_->stats().used_bytes < 4 * kMiB * 95 / 100) {
    static uint64_t key = 1000;
    Put({.key = key++, .bytes = 20'000}, 2);
  }
  store_->Maintain(At(6));
  for (const uint64_t key : {202, 203, 204}) {
    EXPECT_FALSE(Has(*store_, key)) << key;
  }
  EXPECT_TRUE(Has(*store_, 200));
  EXPECT_EQ(Evicted(EvictReason::kOrphan), 3u);
}

TEST_F(StoreTest, OrphansAreForgivenWhenTheirParentReturns) {
  Reset({.host_bytes = 4 * kMiB});
  PutChain(200, 5, 20'000, 5);
  store_->Remove(Space(), Key(201), At(5));
  store_->Maintain(At(5));
  Put({.key = 201, .parent = 200, .position = 1, .content = 2, .bytes = 20'000}, 5);
  for (uint64_t key = 1000; store_->stats().used_bytes < 4 * kMiB * 95 / 100; ++key) {
    Put({.key = key, .bytes = 20'000}, 2);
  }
  store_->Maintain(At(6));
  EXPECT_EQ(Run(200, 5), 5u);
  EXPECT_EQ(Evicted(EvictReason::kOrphan), 0u);
}

TEST_F(StoreTest, PinnedBlocksSurviveAnyPressureAndLeaveTheirChainWhole) {
  Reset({.host_bytes = 1 * kMiB});
  PutChain(1, 5, 50'000, 1);
  std::vector<FormPin> pins = PinKeys(*store_, Keys(5, 1), At(1));
  ASSERT_EQ(pins.size(), 1u);
  for (uint64_t key = 100; key < 400; ++key) {
    Put({.key = key, .bytes = 50'000}, static_cast<double>(key));
  }
  EXPECT_EQ(Run(1, 5), 5u);
  EXPECT_TRUE(BytesAreRight(pins[0], 5, 1));
  pins.clear();
  for (uint64_t key = 400; key < 500; ++key) {
    Put({.key = key, .bytes = 50'000}, static_cast<double>(key));
  }
  EXPECT_EQ(Run(1, 5), 0u);
}

TEST_F(StoreTest, ArenaFullOfPinsRefusesPutsAndRecovers) {
  Reset({.host_bytes = 1 * kMiB});
  std::vector<BlockKey> keys;
  for (uint64_t key = 1; key <= 9; ++key) {
    Put({.key = key, .bytes = 100'000});
    keys.push_back(Key(key));
  }
  std::vector<FormPin> pins = PinKeys(*store_, keys, At(1), Gaps::kKeep);
  const auto refused = PutBlock(*store_, {.key = 50, .bytes = 200'000}, At(2));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->counters().reservations_refused, 1u);
  EXPECT_TRUE(store_->CheckInvariants().ok());
  pins.clear();
  Put({.key = 50, .bytes = 200'000}, 3);
}

TEST_F(StoreTest, PlantedEvictorTakesPinnedForms) {
  PlantedBugs bugs;
  bugs.evict_pinned = true;
  Reset({.host_bytes = 1 * kMiB}, bugs);
  Put({.key = 1, .bytes = 200'000});
  std::vector<FormPin> pins = PinKeys(*store_, Keys(1, 1), At(1));
  const std::span<std::byte> bytes = pins[0].part({0, 0});
  for (uint64_t key = 2; key < 20; ++key) {
    Put({.key = key, .bytes = 200'000}, static_cast<double>(key));
  }
  EXPECT_FALSE(Has(*store_, 1));
  EXPECT_NE(bytes[1000], FillOf(1, 1, {}));
  EXPECT_TRUE(pins[0].part({0, 0}).empty());
}

TEST_F(StoreTest, StalledSetsMakeRoomUnderPressureBeforeTheirTime) {
  Reset({.host_bytes = 1 * kMiB});
  for (uint64_t key = 1; key <= 9; ++key) {
    ASSERT_TRUE(PutPart(*store_, {.key = key, .shards = 2, .bytes = 100'000}, {0, 0}, At(1)).ok());
  }
  EXPECT_FALSE(PutBlock(*store_, {.key = 50, .bytes = 200'000}, At(10.5)).ok());
  EXPECT_TRUE(PutBlock(*store_, {.key = 50, .bytes = 200'000}, At(11)).ok());
}

TEST_F(StoreTest, SetsThatGrowOrAreBeingSentAreNotStalled) {
  Reset({.host_bytes = 1 * kMiB});
  const BlockPut grows{.key = 1, .shards = 3, .bytes = 100'000};
  const BlockPut sent{.key = 2, .shards = 2, .bytes = 100'000};
  ASSERT_TRUE(PutPart(*store_, grows, {0, 0}, At(1)).ok());
  const auto room = store_->Reserve(RequestFor(sent, {0, 0}), At(1));
  ASSERT_TRUE(room.ok());
  ASSERT_TRUE(PutPart(*store_, grows, {0, 1}, At(9)).ok());
  for (uint64_t key = 10; key < 30; ++key) {
    Put({.key = key, .bytes = 100'000}, 12);
  }
  EXPECT_EQ(Evicted(EvictReason::kIncomplete), 0u);
  EXPECT_FALSE(room->expired());
  EXPECT_EQ(*PutPart(*store_, grows, {0, 2}, At(13)), CommitResult::kVisible);
}

TEST_F(StoreTest, AMillionProbesChangeNothing) {
  Reset({.host_bytes = 4 * kMiB});
  PutChain(1, 10, 20'000, 1);
  PutChain(101, 10, 20'000, 2);
  const std::vector<BlockKey> keys = Keys(1, 10);
  const StoreStats before = store_->stats();
  for (int i = 0; i < 100'000; ++i) {
    ASSERT_EQ(store_->Find(Space(), keys, {}, Touch::kNo, At(50)).size(), 10u);
  }
  const StoreStats after = store_->stats();
  EXPECT_EQ(after.pinned_forms, 0u);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
  // Nor the order of eviction: the chain that was probed is still the older one.
  for (uint64_t key = 1000; store_->stats().used_bytes < 4 * kMiB * 95 / 100; ++key) {
    Put({.key = key, .bytes = 20'000}, 3);
  }
  store_->Maintain(At(51));
  EXPECT_EQ(Run(1, 10), 0u);
  EXPECT_GT(Run(101, 10), 0u);
}

TEST_F(StoreTest, DescriptorsAreBoundedAndReused) {
  Reset({.host_bytes = 2 * kMiB, .blocks_max = 64});
  for (uint64_t key = 1; key < 1000; ++key) {
    Put({.key = key, .parent = static_cast<int64_t>(key) + 5000, .position = 1, .bytes = 100},
        static_cast<double>(key));
  }
  EXPECT_LE(store_->stats().blocks, 32u);
  EXPECT_GT(store_->stats().blocks, 20u);
}

TEST_F(StoreTest, FalseClaimsAboutParentsNeitherFormCyclesNorStickInTheArena) {
  Reset({.host_bytes = 1 * kMiB});
  Put({.key = 1, .parent = 2, .position = 1, .bytes = 100'000});
  Put({.key = 2, .parent = 1, .position = 0, .bytes = 100'000});
  Put({.key = 3, .parent = 4, .position = 7, .bytes = 100'000});
  Put({.key = 4, .parent = 3, .position = 8, .bytes = 100'000});
  for (uint64_t key = 10; key < 40; ++key) {
    Put({.key = key, .bytes = 100'000}, static_cast<double>(key));
  }
  for (uint64_t key = 1; key <= 4; ++key) {
    EXPECT_FALSE(Has(*store_, key)) << key;
  }
}

TEST_F(StoreTest, CountsWhatIsThereByCodec) {
  Put({.key = 1, .codec = "raw", .bytes = 4000, .epsilon = 0});
  Put({.key = 2, .codec = "kivi4", .bytes = 1000});
  Put({.key = 3, .codec = "kivi4", .bytes = 1000});
  StoreStats stats = store_->stats();
  EXPECT_EQ(stats.blocks, 3u);
  EXPECT_EQ(stats.stored_bytes, 6000u);
  ASSERT_EQ(stats.by_codec.size(), 2u);
  EXPECT_EQ(stats.by_codec[1].codec, "kivi4");
  EXPECT_EQ(stats.by_codec[1].forms, 2u);
  EXPECT_EQ(stats.by_codec[1].stored_bytes, 2000u);
  store_->Remove(Space(), Key(2), At(31));
  stats = store_->stats();
  EXPECT_EQ(stats.by_codec[1].forms, 1u);
  EXPECT_EQ(stats.logical_bytes, 2 * 131072u);
  EXPECT_EQ(store_->counters().residence[2], 1u);  // 30 s: up to 60
  EXPECT_DOUBLE_EQ(store_->counters().residence_seconds_sum, 30);
}

TEST_F(StoreTest, IncompleteSetsOfABlockAreBounded) {
  BlockPut put;
  put.key = 1;
  put.shards = 2;
  for (uint64_t content = 1; content <= kIncompleteSetsMax; ++content) {
    put.content = content;
    ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  }
  EXPECT_EQ(store_->stats().incomplete_forms, kIncompleteSetsMax);
  EXPECT_EQ(store_->stats().incomplete_blocks, 1u);
  put.content = 99;
  EXPECT_EQ(PutPart(*store_, put, {0, 0}, At(1)).status().code(),
            absl::StatusCode::kResourceExhausted);
  put.content = 3;
  EXPECT_TRUE(PutPart(*store_, put, {0, 1}, At(1)).ok()) << "a set that exists goes on";
  EXPECT_EQ(store_->stats().incomplete_blocks, 0u);
  store_->Maintain(At(100));
  EXPECT_EQ(store_->stats().incomplete_forms, 0u);
}

TEST_F(StoreTest, HoldsTellsWhetherAPutsPartsAreThere) {
  BlockPut put;
  put.key = 1;
  put.shards = 2;
  HeldQuery first{Space(), Key(1), Content(1), "kivi4", 1, 0, 1};
  HeldQuery both = first;
  both.shard_count = 2;
  EXPECT_EQ(store_->Holds(first), Held::kNo);
  ASSERT_TRUE(PutPart(*store_, put, {0, 0}, At(1)).ok());
  EXPECT_EQ(store_->Holds(first), Held::kWaiting);
  EXPECT_EQ(store_->Holds(both), Held::kNo);
  store_->Abandon(Space(), Key(1), Content(1), At(1));
  EXPECT_EQ(store_->Holds(first), Held::kNo);
  Put(put);
  EXPECT_EQ(store_->Holds(both), Held::kVisible);
}

// One call does not look at, or evict, more than it may, however small what lies in the way is.
TEST_F(StoreTest, MakingRoomForALargePartIsBoundedWorkAndGetsThere) {
  StoreOptions options;
  options.host_bytes = 16 * kMiB;
  options.part_bytes_max = 4 * kMiB;
  options.blocks_max = 20'000;
  Reset(options);
  for (uint64_t key = 0; key < 8000; ++key) {
    BlockPut put;
    put.key = key;
    put.bytes = 2000;
    ASSERT_TRUE(PutBlock(*store_, put, At(1 + 1e-3 * static_cast<double>(key))).ok());
  }
  BlockPut large;
  large.key = 1'000'000;
  large.bytes = options.part_bytes_max;
  bool stored = false;
  for (int tries = 0; tries < 64 && !stored; ++tries) {
    const StoreCounters before = store_->counters();
    const uint64_t forms_before = store_->stats().forms;
    stored = PutBlock(*store_, large, At(10 + tries)).ok();
    EXPECT_LE(store_->counters().window_steps - before.window_steps, 32768u);
    EXPECT_LE(forms_before - store_->stats().forms + (stored ? 1 : 0), 256u);
  }
  EXPECT_TRUE(stored);
}

// The same where a search ends, for want of steps, at a block that a long chain builds on: the way
// down that chain counts, for every form that is evicted at its end.
TEST_F(StoreTest, MakingRoomBesideALongChainIsBoundedWork) {
  constexpr uint64_t kChain = 1500;
  constexpr uint64_t kAfter = 5700;
  StoreOptions options;
  options.host_bytes = 16 * kMiB;
  options.part_bytes_max = 4 * kMiB;
  options.blocks_max = 20'000;
  // Where the search ends depends on what lies before the chain: try enough lengths to meet it.
  for (uint64_t before = 250; before < 400; before += 24) {
    Reset(options);
    // Windows may lie anywhere once there was a part clearly larger than what needs one.
    ASSERT_TRUE(PutBlock(*store_, {.key = 2'000'000, .bytes = 4 * kMiB - 4096}, At(0)).ok());
    store_->Remove(Space(), Key(2'000'000), At(0));
    // The arena is filled from its end.
    const uint64_t root = kAfter + kChain - 1;
    const uint64_t all = root + 1 + before;
    for (uint64_t key = 0; key < all; ++key) {
      BlockPut put;
      put.key = key;
      put.bytes = 2000;
      if (key >= kAfter && key < root) {
        put.parent = static_cast<int64_t>(key) + 1;
        put.position = static_cast<uint32_t>(root - key);
      }
      ASSERT_TRUE(PutBlock(*store_, put, At(1)).ok());
    }
    for (uint64_t key = 0; key < all; key += 2) {
      if (key < kAfter || key > root) {
        store_->Remove(Space(), Key(key), At(2));
      }
    }
    BlockPut large;
    large.key = 1'000'000;
    large.bytes = 3 * kMiB;
    bool stored = false;
    for (int tries = 0; tries < 64 && !stored; ++tries) {
      const uint64_t steps_before = store_->counters().window_steps;
      stored = PutBlock(*store_, large, At(10 + tries)).ok();
      EXPECT_LE(store_->counters().window_steps - steps_before, 32768u + 256u * 64u) << before;
    }
    EXPECT_TRUE(stored) << before;
  }
}

// Puts of the largest size go through a full arena at the default watermarks.
TEST_F(StoreTest, DefaultWatermarksLeaveRoomForTheLargestParts) {
  StoreOptions options;
  options.host_bytes = 64 * kMiB;
  options.part_bytes_max = 4 * kMiB;
  Reset(options);
  double now = 1;
  for (uint64_t i = 0; i < 2000; ++i) {
    now += 0.01;
    BlockPut put;
    put.key = i;
    put.bytes = i % 50 == 49 ? options.part_bytes_max : 64 * 1024 + (i % 7) * 5000;
    EXPECT_TRUE(PutBlock(*store_, put, At(now)).ok()) << i;
    while (store_->Maintain(At(now)).more) {
    }
    EXPECT_LE(store_->stats().used_bytes, options.host_bytes * 95 / 100 + 1);
  }
}

TEST(StoreOptionsTest, RefusesWhatCannotBe) {
  const auto code = [](StoreOptions options) {
    return BlockStore::Create(options).status().code();
  };
  EXPECT_EQ(code({.host_bytes = 1000}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.host_bytes = kMiB, .high_watermark = 1.5}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.host_bytes = kMiB, .high_watermark = 0.5, .low_watermark = 0.6}),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.host_bytes = kMiB, .part_bytes_max = 0}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(code({.host_bytes = uint64_t{1} << 60}), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tokura::node
