#pragma once

// A prefix index with what tests say again and again.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "coordinator/prefix_index.h"
#include "tests/unit/coordinator/prefix_index_model.h"

namespace tokura::coordinator {

// Keeps what it is told.
class RecordingSink : public PrefixIndexSink {
 public:
  void Touched(NodeSlot node, const BlockKey& key) override { touched.emplace(node, key); }
  void Orphaned(NodeSlot node, const BlockKey& key) override { orphaned.emplace(node, key); }
  NodeBlocks touched;
  NodeBlocks orphaned;
};

// Owns an index; its classes 0 and 1 are exact and kivi4, of one group.
class IndexFixture {
 public:
  explicit IndexFixture(uint64_t blocks_max = 1 << 22) {
    PrefixIndexOptions options;
    options.blocks_max = blocks_max;
    options.hash_seed = 0x5eed;
    index = std::move(PrefixIndex::Create(options, sink)).value();
    Class("raw", 1, kWireExact);
    Class("kivi4", 1, kWireQuantized);
  }
  ClassId Class(std::string codec, uint32_t group_mask, uint32_t fidelity) {
    return index->Intern(FormClass{std::move(codec), group_mask, 1, fidelity, false, 0}).value();
  }
  SourceId AddSource(NodeSlot node) {
    nodes.resize(std::max<size_t>(nodes.size(), node + size_t{1}),
                 NodeStanding{NodeStanding::Use::kUsable, 0});
    return index->AddSource(node, PrefixIndex::Visibility::kVisible).value();
  }
  // Blocks `first` to `last` of a chain whose keys are ChainKeyOf's, in one form.
  void Put(SourceId source, uint32_t first, uint32_t last, ClassId form_class = 0) {
    const IndexedForm form{form_class, 1000, form_class == 0 ? 0.0f : 0.1f, 0};
    for (uint32_t i = first; i <= last; ++i) {
      Update(source, i, {&form, 1});
    }
  }
  void Remove(SourceId source, uint32_t first, uint32_t last) {
    for (uint32_t i = first; i <= last; ++i) {
      Update(source, i, {});
    }
  }
  // Block i of the chain; i counts from 1.
  static BlockKey Key(uint32_t i) { return i == 0 ? BlockKey{} : TreeKey(1'000'000 + i); }
  LocateResult Locate(uint32_t blocks, const AcceptRule& accept = {}, TimePoint now = {}) {
    std::vector<BlockKey> keys;
    for (uint32_t i = 1; i <= blocks; ++i) {
      keys.push_back(Key(i));
    }
    LocateQuery query;
    query.keys = keys;
    query.accept = &accept;
    query.rule = rule;
    query.nodes = nodes;
    query.touch = touch;
    query.now = now;
    LocateResult result;
    index->Locate(query, result);
    return result;
  }
  // "node:first+count" of runs, separated by spaces.
  static std::string Text(const std::vector<IndexRun>& runs) {
    std::string text;
    for (const IndexRun& run : runs) {
      text += (text.empty() ? "" : " ") + std::to_string(run.node) + ":" +
              std::to_string(run.first) + "+" + std::to_string(run.count);
    }
    return text;
  }
  void Settle() {
    while (index->Work(64, PrefixIndex::Orphans::kTell)) {
    }
  }

  RecordingSink sink;
  std::unique_ptr<PrefixIndex> index;
  std::vector<NodeStanding> nodes;
  PrefixRule rule;
  LocateQuery::Touch touch = LocateQuery::Touch::kNo;

 private:
  void Update(SourceId source, uint32_t i, std::span<const IndexedForm> forms) {
    const IndexUpdate update{Key(i), Key(i - 1), forms};
    index->Apply(source, {&update, 1});
  }
};

}  // namespace tokura::coordinator
