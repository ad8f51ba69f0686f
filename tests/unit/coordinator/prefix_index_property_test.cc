// Random histories of the prefix index, every answer compared with the model's.

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/coordinator/prefix_index_model.h"
#include "tests/unit/coordinator/prefix_index_testing.h"

namespace tokura::coordinator {
namespace {

constexpr uint32_t kBlocks = 120;
constexpr NodeSlot kNodes = 5;
constexpr size_t kSourcesMax = 8;
const char* const kCodecs[] = {"raw", "int8", "kivi4"};

class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    PrefixIndexOptions options;
    options.blocks_max = 1 << 16;
    options.hash_seed = seed;
    index_ = std::move(PrefixIndex::Create(options, sink_)).value();
    for (uint32_t groups = 1; groups < 8; ++groups) {
      for (uint32_t fidelity = kWireExact; fidelity <= kWireSummary; ++fidelity) {
        const FormClass form_class{kCodecs[fidelity - 1], groups, 1, fidelity, Below(2) == 0, 0};
        classes_.push_back(index_->Intern(form_class).value());
      }
    }
  }

  void Step() {
    switch (Below(10)) {
      case 0:
        AddSource();
        break;
      case 1:
        DropOrShow();
        break;
      case 2:
      case 3:
      case 4:
      case 5:
        Update();
        break;
      case 6:
        CompareHeld();
        break;
      default:
        CompareLocate();
    }
    CompareCounts();
  }

 private:
  struct Source {
    SourceId id;
    bool visible;
  };
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void AddSource() {
    if (sources_.size() == kSourcesMax) {
      return;
    }
    const auto node = static_cast<NodeSlot>(Below(kNodes));
    const bool visible = Below(3) > 0;
    const SourceId id = index_
                            ->AddSource(node, visible ? PrefixIndex::Visibility::kVisible
                                                      : PrefixIndex::Visibility::kHidden)
                            .value();
    model_.AddSource(id, node, visible);
    sources_.push_back({id, visible});
  }

  void DropOrShow() {
    if (sources_.empty()) {
      return;
    }
    const size_t i = Below(static_cast<uint32_t>(sources_.size()));
    if (!sources_[i].visible) {
      index_->Show(sources_[i].id);
      model_.Show(sources_[i].id);
      sources_[i].visible = true;
      return;
    }
    index_->Drop(sources_[i].id);
    expected_ = model_.Orphans(model_.Drop(sources_[i].id));
    sources_.erase(sources_.begin() + static_cast<std::ptrdiff_t>(i));
    CompareLocate();  // it is gone before it is swept
    CompareOrphans();
  }

  std::vector<IndexedForm> RandomForms() {
    std::vector<IndexedForm> forms;
    for (uint32_t left = 1 + Below(3); left > 0; --left) {
      const ClassId form_class = classes_[Below(static_cast<uint32_t>(classes_.size()))];
      if (std::none_of(forms.begin(), forms.end(),
                       [&](const IndexedForm& form) { return form.form_class == form_class; })) {
        const float error = static_cast<float>(Below(4)) * 0.1f;
        forms.push_back({form_class, 100 + Below(3), error, error * 2});
      }
    }
    return forms;
  }

  // One batch, of distinct blocks, that removes all of them or none: what comes to a block that
  // vanishes in the same batch may be told or not.
  void Update() {
    if (sources_.empty()) {
      return;
    }
    const SourceId source = sources_[Below(static_cast<uint32_t>(sources_.size()))].id;
    std::set<uint32_t> blocks;
    const bool removes = Below(2) == 0;
    for (uint32_t left = removes ? Below(12) : 40 + Below(100); left > 0; --left) {
      blocks.insert(1 + Below(kBlocks));
    }
    std::vector<std::vector<IndexedForm>> forms;
    std::vector<IndexUpdate> updates;
    forms.reserve(blocks.size());
    std::set<uint32_t> vanished;
    for (const uint32_t block : blocks) {
      forms.push_back(removes ? std::vector<IndexedForm>{} : RandomForms());
      updates.push_back({TreeKey(block), TreeKey(TreeParent(block)), forms.back()});
      vanished.merge(model_.Set(source, block, forms.back()));
    }
    std::shuffle(updates.begin(), updates.end(), random_);
    index_->Apply(source, updates);
    expected_ = model_.Orphans(vanished);
    CompareOrphans();
  }

  void CompareOrphans() {
    sink_.orphaned.clear();
    while (index_->Work(1 + Below(5), PrefixIndex::Orphans::kTell)) {
    }
    EXPECT_EQ(sink_.orphaned, expected_);
    EXPECT_EQ(index_->stats().sources_swept, 0u);
    EXPECT_TRUE(index_->CheckInvariants().ok()) << index_->CheckInvariants();
  }

  std::vector<NodeStanding> RandomStandings() {
    std::vector<NodeStanding> nodes(1 + Below(kNodes));
    for (NodeStanding& node : nodes) {
      node = {static_cast<NodeStanding::Use>(std::min(2u, Below(8))), Below(3)};
    }
    return nodes;
  }

  std::vector<uint32_t> RandomChain() {
    std::vector<uint32_t> chain;
    for (uint32_t block = 1 + Below(kBlocks); block != 0; block = TreeParent(block)) {
      chain.insert(chain.begin(), block);
    }
    return chain;
  }

  PrefixRule RandomRule() {
    proto::LocateRequest request;
    for (uint32_t group = 0; group < 3; ++group) {
      if (Below(3) == 0) {
        proto::GroupRule& rule = *request.add_groups();
        rule.set_group(group);
        rule.set_tail_blocks(Below(5));
      }
    }
    return PrefixRule::Read(request.groups()).value();
  }

  AcceptRule RandomAccept() {
    AcceptRule accept;
    if (Below(4) == 0) {
      accept.max_error = Below(4) * 0.1;
    }
    accept.allow_summary = Below(3) > 0;
    accept.accept_proxy_error = Below(2) == 0;
    if (Below(4) == 0) {
      accept.codecs = {kCodecs[Below(3)], kCodecs[Below(3)]};
    }
    return accept;
  }

  void CompareLocate() {
    const std::vector<uint32_t> chain = RandomChain();
    std::vector<BlockKey> keys;
    for (const uint32_t block : chain) {
      keys.push_back(TreeKey(block));
    }
    const std::vector<NodeStanding> nodes = RandomStandings();
    const AcceptRule accept = RandomAccept();
    LocateQuery query;
    query.keys = keys;
    query.accept = &accept;
    query.rule = RandomRule();
    query.nodes = nodes;
    query.touch = Below(2) == 0 ? LocateQuery::Touch::kYes : LocateQuery::Touch::kNo;
    now_ += std::chrono::seconds(2);
    query.now = now_;
    LocateResult result;
    sink_.touched.clear();
    index_->Locate(query, result);
    const LocateResult expected = model_.Locate(chain, query, *index_);
    EXPECT_EQ(result.prefix_blocks, expected.prefix_blocks);
    EXPECT_EQ(result.runs, expected.runs);
    EXPECT_EQ(result.alternates, expected.alternates);
    NodeBlocks touched;
    for (uint32_t i = 0; i < expected.prefix_blocks; ++i) {
      for (const NodeSlot node : model_.VisibleNodes(chain[i])) {
        touched.emplace(node, keys[i]);
      }
    }
    EXPECT_EQ(sink_.touched, query.touch == LocateQuery::Touch::kYes ? touched : NodeBlocks{});
    found_ += expected.prefix_blocks;
  }

  void CompareHeld() {
    std::vector<BlockKey> keys;
    for (uint32_t block = 1; block <= kBlocks; ++block) {
      keys.push_back(TreeKey(block));
    }
    const std::vector<NodeStanding> nodes = RandomStandings();
    const HeldQuery query{keys, kCodecs[Below(3)], Below(4), nodes};
    std::vector<BlockHolders> holders;
    index_->Held(query, holders);
    ASSERT_EQ(holders.size(), keys.size());
    for (uint32_t block = 1; block <= kBlocks; ++block) {
      const std::span<const NodeSlot> told = holders[block - 1].span();
      EXPECT_EQ(std::vector<NodeSlot>(told.begin(), told.end()),
                model_.Holders(block, query, *index_));
    }
  }

  void CompareCounts() {
    EXPECT_EQ(index_->stats().blocks, model_.blocks());
    for (const Source& source : sources_) {
      EXPECT_EQ(index_->SourceBlocks(source.id), model_.SourceBlocks(source.id));
    }
  }

 public:
  uint64_t found() const { return found_; }

 private:
  std::mt19937_64 random_;
  RecordingSink sink_;
  std::unique_ptr<PrefixIndex> index_;
  PrefixIndexModel model_;
  std::vector<ClassId> classes_;
  std::vector<Source> sources_;
  NodeBlocks expected_;
  TimePoint now_{};
  uint64_t found_ = 0;
};

TEST(PrefixIndexPropertyTest, AnswersAsTheModelDoes) {
  uint64_t found = 0;
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    History history(seed);
    for (int step = 0; step < 150 && !testing::Test::HasFailure(); ++step) {
      SCOPED_TRACE(step);
      history.Step();
    }
    found += history.found();
  }
  EXPECT_GT(found, 2000u);  // the comparison was of something
}

}  // namespace
}  // namespace tokura::coordinator
