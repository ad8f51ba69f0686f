#include "tests/unit/client/client_testing.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace tokura {

EngineMemory::EngineMemory(const Namespace& ns, uint32_t blocks, uint32_t first_shard,
                           uint32_t shards)
    : ns_(ns),
      tokens_(blocks * ns.spec().block_tokens),
      first_shard_(first_shard),
      shards_(shards == 0 ? ns.spec().head_shards : shards) {
  for (size_t g = 0; g < ns.spec().groups.size(); ++g) {
    const kernels::PartShape shape = ns.Shape(g);
    groups_.push_back({shape.layers, shape.heads * shards_, shape.k_head_dim, shape.v_head_dim});
    values_.emplace_back(size_t{shape.layers} * shape.heads * shards_ * tokens_ *
                         (shape.k_head_dim + shape.v_head_dim));
  }
}

SequenceView EngineMemory::View() {
  SequenceView view;
  view.first_shard = first_shard_;
  view.shards = shards_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const Group& group = groups_[g];
    const size_t side = size_t{group.heads} * tokens_ * group.k_dim;
    std::vector<kernels::KvLayer> layers;
    for (uint32_t i = 0; i < group.layers; ++i) {
      float* k = values_[g].data() + 2 * i * side;
      layers.push_back({reinterpret_cast<std::byte*>(k), reinterpret_cast<std::byte*>(k + side)});
    }
    view.groups.push_back(kernels::ContiguousView(DType::kFloat32, group.heads, group.k_dim,
                                                  tokens_, std::move(layers)));
  }
  return view;
}

void EngineMemory::Randomize(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (std::vector<float>& group : values_) {
    for (float& value : group) {
      value = normal(random);
    }
  }
}

void EngineMemory::Fill(float value) {
  for (std::vector<float>& group : values_) {
    std::fill(group.begin(), group.end(), value);
  }
}

std::vector<float> EngineMemory::Block(size_t g, uint32_t block, uint32_t first_layer,
                                       uint32_t layers) const {
  const Group& group = groups_[g];
  const uint32_t block_tokens = ns_.spec().block_tokens;
  const uint32_t end = layers == 0 ? group.layers : first_layer + layers;
  std::vector<float> out;
  // K and V of a layer follow each other and have the same shape in these tests.
  for (uint32_t plane = 2 * first_layer; plane < 2 * end; ++plane) {
    for (uint32_t head = 0; head < group.heads; ++head) {
      const size_t at =
          ((size_t{plane} * group.heads + head) * tokens_ + size_t{block} * block_tokens) *
          group.k_dim;
      out.insert(out.end(), values_[g].begin() + at,
                 values_[g].begin() + at + size_t{block_tokens} * group.k_dim);
    }
  }
  return out;
}

NamespaceSpec SmallSpec() {
  NamespaceSpec spec;
  spec.model = "test";
  spec.dtype = DType::kFloat32;
  spec.block_tokens = 16;
  spec.groups.resize(1);
  spec.groups[0].layers = {0, 1, 2};
  spec.groups[0].kv_heads = 2;
  spec.groups[0].k_head_dim = 64;
  spec.groups[0].v_head_dim = 64;
  return spec;
}

TokenChain MakeChain(const Namespace& ns, uint32_t blocks, uint32_t salt) {
  TokenChain chain(ns.fingerprint(), ns.spec().block_tokens);
  std::vector<uint32_t> tokens(size_t{blocks} * ns.spec().block_tokens);
  std::iota(tokens.begin(), tokens.end(), salt * 100000);
  chain.Append(tokens);
  return chain;
}

ClientTest::ClientTest(uint64_t seed)
    : scheduler_(seed),
      network_(scheduler_, {}),
      host_(scheduler_, {.name = "client", .ip = "10.0.1.1"}),
      transport_(network_, host_.loop()),
      ns_(std::make_shared<const Namespace>(SmallSpec())) {}

ClientTest::~ClientTest() {
  StopClient();
  nodes_.clear();
  if (!warnings_expected_) {
    EXPECT_EQ(LogCounts().warnings, logged_before_.warnings);
  }
  EXPECT_EQ(LogCounts().errors, logged_before_.errors);
}

Match ClientTest::PutAndLookup(EngineMemory& source, const TokenChain& chain) {
  source.Randomize(77);
  EXPECT_EQ(Put(chain, source.View()).stored(), chain.blocks());
  Match match = Lookup(chain);
  EXPECT_EQ(match.blocks(), chain.blocks());
  return match;
}

FakeNode& ClientTest::AddNode(FakeNode::Options options) {
  nodes_.push_back(std::make_unique<FakeNode>(network_, std::move(options)));
  return *nodes_.back();
}

void ClientTest::StartClient(ClientOptions options, ClientPlantedBugs bugs) {
  options.ingest_codec = options.ingest_codec == "kivi4" ? "raw" : options.ingest_codec;
  if (options.nodes.empty()) {
    for (const auto& node : nodes_) {
      options.nodes.push_back(node->address());
    }
  }
  OnLoop([&] {
    auto core =
        ClientCore::Create({transport_, host_.pool(), host_.random(), registry_}, options, bugs);
    ASSERT_TRUE(core.ok()) << core.status();
    core_ = std::move(*core);
  });
  if (!nodes_.empty()) {
    RunUntil([&] { return core_->ready(); });
    RunFor(std::chrono::milliseconds(20));
  }
}

void ClientTest::StopClient() {
  if (!core_) {
    return;
  }
  bool stopped = false;
  OnLoop([&] { core_->Shutdown([&] { stopped = true; }); });
  RunUntil([&] { return stopped; }, std::chrono::seconds(5));
  OnLoop([&] { core_.reset(); });
}

void ClientTest::RunUntil(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = scheduler_.Now() + limit;
  while (!done()) {
    ASSERT_LT(scheduler_.Now(), end) << "not done in time";
    ASSERT_TRUE(scheduler_.Step()) << "nothing left to happen";
  }
}

Match ClientTest::Lookup(const TokenChain& chain, LookupOptions options) {
  std::optional<absl::StatusOr<Match>> match;
  OnLoop([&] {
    core_->Lookup(ns_, chain, options, [&](absl::StatusOr<Match> m) { match = std::move(m); });
  });
  EXPECT_FALSE(match) << "called back inline";
  RunUntil([&] { return match.has_value(); });
  EXPECT_TRUE(match && match->ok());
  return match && match->ok() ? std::move(**match) : Match{};
}

Match ClientTest::Acquire(const Match& match) {
  std::optional<absl::StatusOr<Match>> held;
  OnLoop([&] {
    core_->Acquire(ns_, match, {}, [&](absl::StatusOr<Match> m) { held = std::move(m); });
  });
  RunUntil([&] { return held.has_value(); });
  EXPECT_TRUE(held && held->ok());
  return held && held->ok() ? std::move(**held) : Match{};
}

std::shared_ptr<ClientTest::PendingGet> ClientTest::StartGet(const Match& match, SequenceView view,
                                                             GetOptions options) {
  auto pending = std::make_shared<PendingGet>();
  OnLoop([&] {
    pending->id = core_->Get(ns_, match, std::move(view), std::move(options),
                             [this, pending](GetResult result) {
                               EXPECT_FALSE(pending->result) << "called back twice";
                               pending->result = std::move(result);
                               pending->ended = Now();
                             });
  });
  EXPECT_FALSE(pending->result) << "called back inline";
  return pending;
}

GetResult ClientTest::Get(const Match& match, SequenceView view, GetOptions options) {
  const auto pending = StartGet(match, std::move(view), std::move(options));
  RunUntil([&] { return pending->result.has_value(); });
  return pending->result ? *pending->result : GetResult{};
}

std::shared_ptr<ClientTest::PendingPut> ClientTest::StartPut(const TokenChain& chain,
                                                             SequenceView view,
                                                             PutOptions options) {
  auto pending = std::make_shared<PendingPut>();
  OnLoop([&] {
    pending->id = core_->Put(
        ns_, chain, std::move(view), std::move(options),
        [this, pending] {
          EXPECT_FALSE(pending->released) << "released twice";
          pending->released = true;
          pending->released_at = Now();
        },
        [this, pending](PutResult result) {
          EXPECT_TRUE(pending->released) << "the outcome came before the release";
          EXPECT_FALSE(pending->result) << "called back twice";
          pending->result = std::move(result);
          pending->ended = Now();
        });
  });
  EXPECT_FALSE(pending->result) << "called back inline";
  return pending;
}

PutResult ClientTest::Put(const TokenChain& chain, SequenceView view, PutOptions options) {
  const auto pending = StartPut(chain, std::move(view), std::move(options));
  RunUntil([&] { return pending->result.has_value(); });
  return pending->result ? *pending->result : PutResult{};
}

RemoveResult ClientTest::Remove(std::vector<BlockKey> keys) {
  std::optional<RemoveResult> result;
  OnLoop(
      [&] { core_->Remove(ns_, std::move(keys), [&](RemoveResult r) { result = std::move(r); }); });
  RunUntil([&] { return result.has_value(); });
  return result ? *result : RemoveResult{};
}

double ClientTest::Metric(const std::string& name,
                          const std::vector<std::pair<std::string, std::string>>& labels) const {
  for (const prometheus::MetricFamily& family : registry_->Collect()) {
    for (const prometheus::ClientMetric& metric : family.metric) {
      bool same = family.name == name;
      for (const auto& [key, value] : labels) {
        bool found = false;
        for (const auto& label : metric.label) {
          found = found || (label.name == key && label.value == value);
        }
        same = same && found;
      }
      if (!same) {
        continue;
      }
      switch (family.type) {
        case prometheus::MetricType::Counter:
          return metric.counter.value;
        case prometheus::MetricType::Gauge:
          return metric.gauge.value;
        default:
          return static_cast<double>(metric.histogram.sample_count);
      }
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace tokura
