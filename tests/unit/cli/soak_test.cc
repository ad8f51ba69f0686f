#include "cli/soak.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/local_codec.h"
#include "common/check.h"

namespace tokura::cli {
namespace {

// Time moves by a millisecond whenever somebody looks, and as far as a test pushes it.
class StepClock : public Clock {
 public:
  TimePoint Now() const override { return TimePoint(Duration(now_ns_ += 1'000'000)); }
  uint64_t WallMicros() const override { return 0; }
  void Advance(Duration by) { now_ns_ += by.count(); }

 private:
  mutable std::atomic<int64_t> now_ns_{0};
};

class DonePut : public PutHandle {
 public:
  explicit DonePut(PutResult result) : result_(std::move(result)) {}
  void WaitReleased() override {}
  PutResult Wait() override { return result_; }
  void Cancel() override {}

 private:
  PutResult result_;
};

// Holds encoded parts in this process. `tamper` changes what a get gives.
class LocalClient : public Client {
 public:
  using Tamper = std::function<void(const SequenceView& view, GetResult* result)>;
  explicit LocalClient(Tamper tamper = nullptr) : tamper_(std::move(tamper)) {}

  absl::StatusOr<NamespaceRef> OpenNamespace(NamespaceSpec spec) override {
    return std::make_shared<const Namespace>(std::move(spec));
  }
  absl::Status WaitReady(Duration) override { return absl::OkStatus(); }
  // The soak only uses blocking calls.
  Executor& executor() override { std::abort(); }
  ClientCore& core() override { std::abort(); }

  absl::StatusOr<Match> Lookup(const NamespaceRef& ns, const TokenChain& chain,
                               const LookupOptions&) override {
    const MutexLock lock(mutex_);
    Match match;
    match.fingerprint = ns->fingerprint();
    match.block_tokens = ns->spec().block_tokens;
    for (const BlockKey& key : chain.keys()) {
      if (parts_.count(key) == 0) {
        break;
      }
      match.keys.push_back(key);
    }
    return match;
  }
  absl::StatusOr<Match> Acquire(const NamespaceRef&, const Match& match,
                                const AcceptOptions&) override {
    return match;
  }
  void Renew(const Match&) override {}
  void Release(const Match&) override {}

  GetResult Get(const NamespaceRef& ns, const Match& match, const SequenceView& view,
                const GetOptions& options) override {
    GetResult result;
    for (uint32_t block = 0; block < match.blocks(); ++block) {
      result.blocks.push_back(Decode(ns, match.keys[block], block, view, options, &result));
    }
    if (tamper_) {
      tamper_(view, &result);
    }
    return result;
  }
  std::unique_ptr<GetHandle> StartGet(const NamespaceRef&, const Match&, const SequenceView&,
                                      const GetOptions&) override {
    return nullptr;
  }
  std::unique_ptr<PutHandle> StartPut(const NamespaceRef& ns, const TokenChain& chain,
                                      const SequenceView& view,
                                      const PutOptions& options) override {
    PutResult result;
    for (uint32_t block = options.first_block; block < chain.blocks(); ++block) {
      const BlockPart part{ns, 0, block, chain.keys()[block]};
      kernels::EncodeOptions encode;
      encode.codec = *options.codec;
      const PartBuffer buffer(*EncodedPartBytesMax(part, encode.codec));
      const size_t bytes = *EncodePart(part, encode, view.groups[0], buffer.bytes());
      const MutexLock lock(mutex_);
      parts_[part.key].assign(buffer.bytes().begin(), buffer.bytes().begin() + bytes);
      result.blocks.push_back(absl::OkStatus());
    }
    return std::make_unique<DonePut>(std::move(result));
  }
  RemoveResult Remove(const NamespaceRef&, const std::vector<BlockKey>& keys) override {
    const MutexLock lock(mutex_);
    RemoveResult result;
    for (const BlockKey& key : keys) {
      result.blocks.push_back(parts_.erase(key) > 0 ? absl::OkStatus() : absl::NotFoundError(""));
    }
    return result;
  }
  std::vector<absl::StatusOr<NodeStat>> Stat() override { return {}; }
  absl::Status SetNodes(const std::vector<std::string>&) override { return absl::OkStatus(); }

 private:
  absl::Status Decode(const NamespaceRef& ns, const BlockKey& key, uint32_t block,
                      const SequenceView& view, const GetOptions& options, GetResult* result) {
    const MutexLock lock(mutex_);
    result->codecs.emplace_back();
    result->declared_error.emplace_back();
    const auto found = parts_.find(key);
    if (found == parts_.end()) {
      return absl::NotFoundError("");
    }
    const auto reader = kernels::PartReader::Open(found->second);
    TOKURA_CHECK(reader.ok());
    const auto& offsets = reader->info().layer_offset;
    const uint32_t end =
        options.layers == 0 ? ns->Shape(0).layers : options.first_layer + options.layers;
    for (uint32_t layer = options.first_layer; layer < end; ++layer) {
      const auto bytes = std::span(std::as_const(found->second))
                             .subspan(offsets[layer], offsets[layer + 1] - offsets[layer]);
      const absl::Status decoded =
          reader->DecodeLayer(layer, bytes,
                              {.view = &view.groups[0],
                               .view_layer = layer,
                               .first_token = block * ns->spec().block_tokens});
      TOKURA_CHECK(decoded.ok());
    }
    result->codecs.back() = reader->info().codec;
    result->declared_error.back() = reader->info().error.Mean();
    return absl::OkStatus();
  }

  Mutex mutex_;
  std::map<BlockKey, std::vector<std::byte>> parts_ TOKURA_GUARDED_BY(mutex_);
  const Tamper tamper_;
};

SoakOptions SmallSoak() {
  SoakOptions options;
  options.content.block_bytes = 16 << 10;
  options.content.chains = 6;
  options.content.blocks_per_chain = 3;
  options.threads = 1;
  options.run_time = std::chrono::seconds(3);
  return options;
}

SoakReport SoakFor(Client& client, const SoakOptions& options = SmallSoak()) {
  const StepClock clock;
  return RunSoak(client, options, clock, [](std::string_view) {});
}

TEST(SoakTest, ACorrectCacheIsFoundCorrect) {
  LocalClient client;
  SoakOptions options = SmallSoak();
  options.threads = 3;
  // The clock steps with every look of any thread: one that gets no processor seems to hang.
  options.slack = std::chrono::hours(1);
  const SoakReport report = SoakFor(client, options);
  EXPECT_TRUE(report.clean()) << ::testing::PrintToString(report.complaints);
  EXPECT_GT(report.puts, 100u);
  EXPECT_GT(report.hits, 100u);
  EXPECT_LE(report.hits, report.gets);
  EXPECT_GT(report.status.at("OK"), 0u);
  EXPECT_EQ(report.latency.count(), report.ops);
}

TEST(SoakTest, OneWrongByteIsFound) {
  LocalClient client([](const SequenceView& view, GetResult* result) {
    if (result->blocks.size() == 3 && result->blocks[2].ok()) {
      for (size_t layer = 0; layer < view.groups[0].layers.size(); ++layer) {
        view.groups[0].VAt(layer, 2 * 16 + 15, 0)[127] ^= std::byte{1};
      }
    }
  });
  const SoakReport report = SoakFor(client);
  EXPECT_GT(report.wrong, 0u);
  EXPECT_FALSE(report.clean());
  ASSERT_FALSE(report.complaints.empty());
  EXPECT_THAT(report.complaints[0], ::testing::HasSubstr("block 2"));
}

TEST(SoakTest, AnotherCodecAndALossyBlockPassedOffAsExactAreFound) {
  LocalClient other_codec([](const SequenceView&, GetResult* result) {
    for (std::string& codec : result->codecs) {
      codec = "int8";
    }
  });
  EXPECT_GT(SoakFor(other_codec).wrong, 0u);
  LocalClient undeclared([](const SequenceView&, GetResult* result) {
    for (double& error : result->declared_error) {
      error = 0;
    }
  });
  EXPECT_GT(SoakFor(undeclared).wrong, 0u);
}

TEST(SoakTest, AWriteIntoMemoryOfAReturnedGetIsFound) {
  // Remembers where the last get's memory lies, and writes there during the next one.
  std::byte* earlier = nullptr;
  LocalClient client([&earlier](const SequenceView& view, GetResult*) {
    if (earlier != nullptr) {
      *earlier ^= std::byte{1};
    }
    earlier = view.groups[0].KAt(0, 0, 0);
  });
  const SoakReport report = SoakFor(client);
  EXPECT_GT(report.wrong, 0u);
  EXPECT_THAT(report.complaints, ::testing::Contains(::testing::HasSubstr("changed after")));
}

TEST(SoakTest, ALayerThatWasNotAskedForMustStayUntouched) {
  LocalClient client([](const SequenceView& view, GetResult* result) {
    // Writes the last layer of the first block, whatever was asked for, with its right bytes' sign.
    if (!result->blocks.empty()) {
      const size_t last = view.groups[0].layers.size() - 1;
      std::byte* at = view.groups[0].KAt(last, 0, 0);
      if (*at == std::byte{0xff}) {
        *at = std::byte{0};
      }
    }
  });
  const SoakReport report = SoakFor(client);
  EXPECT_THAT(report.complaints, ::testing::Contains(::testing::HasSubstr("was not asked for")));
}

TEST(SoakTest, ACallBeyondItsDeadlineHangs) {
  SoakOptions options = SmallSoak();
  StepClock pushed;
  LocalClient client([&pushed, &options](const SequenceView&, GetResult*) {
    pushed.Advance(options.transfer_deadline + options.slack);
  });
  options.run_time = std::chrono::seconds(20);
  const SoakReport report = RunSoak(client, options, pushed, [](std::string_view) {});
  EXPECT_GT(report.hung, 0u);
  EXPECT_FALSE(report.clean());
  EXPECT_THAT(report.complaints, ::testing::Contains(::testing::HasSubstr("get took")));
}

TEST(SoakTest, EndsBeforeItsTimeWhenToldTo) {
  LocalClient client;
  SoakOptions options = SmallSoak();
  options.run_time = std::chrono::hours(24);
  std::atomic<bool> stop{false};
  options.maybe_stop = &stop;
  const StepClock clock;
  int steps = 0;
  const SoakReport report =
      RunSoak(client, options, clock, [&](std::string_view) { stop = ++steps == 20; });
  EXPECT_EQ(steps, 20);
  EXPECT_TRUE(report.clean());
  EXPECT_GE(report.ops, 20u);
}

TEST(SoakTest, WithoutVerifyOnlyTheBytesAreNotChecked) {
  LocalClient client(
      [](const SequenceView& view, GetResult*) { *view.groups[0].KAt(0, 0, 0) ^= std::byte{1}; });
  SoakOptions options = SmallSoak();
  options.verify = SoakVerify::kNo;
  const SoakReport report = SoakFor(client, options);
  EXPECT_EQ(report.wrong, 0u);
  EXPECT_GT(report.hits, 0u);
}

TEST(RecoveryWatchTest, CountsFromTheFirstFaultToTheFirstHitThatBeganAfterIt) {
  const auto at = [](int ms) { return TimePoint(std::chrono::milliseconds(ms)); };
  RecoveryWatch watch;
  watch.SawHit({at(1), at(2)});
  EXPECT_TRUE(watch.recovery_ms().empty());
  watch.SawFault(at(10));
  watch.SawFault(at(20));
  watch.SawHit({at(5), at(21)});  // was under way before the fault
  EXPECT_TRUE(watch.recovery_ms().empty());
  watch.SawHit({at(30), at(35)});
  watch.SawHit({at(40), at(45)});
  EXPECT_EQ(watch.recovery_ms(), std::vector<double>{25});
  watch.SawFault(at(50));
  watch.SawHit({at(60), at(61)});
  EXPECT_EQ(watch.recovery_ms(), (std::vector<double>{25, 11}));
}

TEST(SoakReportTest, JsonHasTheKeysThatScriptsRelyOn) {
  SoakReport report;
  report.ops = 3;
  report.status["OK"] = 2;
  report.recovery_ms = {12.5};
  report.latency.Add(std::chrono::milliseconds(4));
  const Json json = ToJson(report);
  EXPECT_EQ(json["ops"], 3);
  for (const char* key : {"puts", "gets", "hits", "wrong", "hung"}) {
    EXPECT_EQ(json[key], 0) << key;
  }
  EXPECT_EQ(json["status"]["OK"], 2);
  EXPECT_EQ(json["latency_ms"]["max"], 4.0);
  EXPECT_TRUE(json["latency_ms"].contains("p50") && json["latency_ms"].contains("p99"));
  EXPECT_EQ(json["recovery_ms"], Json::array({12.5}));
}

TEST(SoakContentTest, EveryBlockHasContentOfItsOwnAndAlwaysTheSame) {
  const SoakContent content({.block_bytes = 8192, .chains = 4, .blocks_per_chain = 3});
  const SoakContent again({.block_bytes = 8192, .chains = 4, .blocks_per_chain = 3});
  std::set<std::vector<std::byte>> seen;
  std::set<BlockKey> keys;
  const BlockPages pages = content.MakePages();
  const BlockPages other = again.MakePages();
  for (uint32_t chain = 0; chain < 4; ++chain) {
    content.Fill(chain, pages);
    again.Fill(chain, other);
    EXPECT_EQ(std::memcmp(pages.bytes().data(), other.bytes().data(), pages.bytes().size()), 0);
    for (uint32_t block = 0; block < 3; ++block) {
      const auto bytes = pages.Block(block);
      seen.emplace(bytes.begin(), bytes.end());
      keys.insert(content.chain(chain).keys()[block]);
      EXPECT_EQ(content.chain(chain).keys()[block], again.chain(chain).keys()[block]);
    }
  }
  EXPECT_EQ(seen.size(), 12u);
  EXPECT_EQ(keys.size(), 12u);
}

TEST(SoakContentTest, BlocksHaveAboutTheSizeAskedFor) {
  for (const uint64_t bytes : {1u, 4096u, 5000u, 262144u, 1u << 20, 4u << 20}) {
    const PagesShape shape = SoakShape(bytes);
    EXPECT_GE(shape.BlockBytes(), bytes);
    EXPECT_LE(shape.layers, 32u);
    EXPECT_LE(shape.BlockBytes(), bytes + 32 * 4096) << bytes;
  }
}

}  // namespace
}  // namespace tokura::cli
