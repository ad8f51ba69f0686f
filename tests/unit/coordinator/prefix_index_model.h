#pragma once

// What the prefix index promises, said in the plainest way: a map of everything, searched from end
// to end. The tests compare the two.

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "coordinator/prefix_index.h"

namespace tokura::coordinator {

// The blocks of the tests are a tree of chains of eight that branch off each other; block 0 is
// nothing, block 1 the root.
inline BlockKey TreeKey(uint32_t block) {
  BlockKey key;
  for (size_t i = 0; i < 4; ++i) {
    key.bytes[i] = static_cast<uint8_t>(block >> (8 * i));
    key.bytes[8 + i] = static_cast<uint8_t>((block * 2654435761u) >> (8 * i));
  }
  return block == 0 ? BlockKey{} : key;
}
inline uint32_t TreeParent(uint32_t block) {
  return block / 3;
}

using NodeBlocks = std::multiset<std::pair<NodeSlot, BlockKey>>;

class PrefixIndexModel {
 public:
  void AddSource(SourceId source, NodeSlot node, bool visible) {
    sources_[source] = Source{node, visible, {}};
  }
  void Show(SourceId source) { sources_[source].visible = true; }
  // Blocks whose descendants lost their prefix by this.
  std::set<uint32_t> Drop(SourceId source);
  std::set<uint32_t> Set(SourceId source, uint32_t block, std::vector<IndexedForm> forms);

  // What becomes an orphan when `vanished` have gone just now.
  NodeBlocks Orphans(const std::set<uint32_t>& vanished) const;
  bool Held(uint32_t block) const;
  size_t blocks() const;
  size_t SourceBlocks(SourceId source) const { return sources_.at(source).blocks.size(); }

  LocateResult Locate(const std::vector<uint32_t>& chain, const LocateQuery& query,
                      const PrefixIndex& classes) const;
  std::vector<NodeSlot> Holders(uint32_t block, const HeldQuery& query,
                                const PrefixIndex& classes) const;
  // Nodes that a touch of the block is told to.
  std::set<NodeSlot> VisibleNodes(uint32_t block) const;

 private:
  struct Source {
    NodeSlot node = 0;
    bool visible = false;
    std::map<uint32_t, std::vector<IndexedForm>> blocks;
  };
  struct Choice {
    NodeSlot node = 0;
    NodeStanding standing;
    IndexedForm form;
  };
  std::vector<Choice> Choices(uint32_t block, uint32_t needed, const LocateQuery& query,
                              const PrefixIndex& classes) const;
  static const Choice* Best(const std::vector<Choice>& choices, std::optional<NodeSlot> before,
                            const LocateQuery& query, const PrefixIndex& classes);
  size_t Usable(const std::vector<uint32_t>& chain, const LocateQuery& query,
                const PrefixIndex& classes) const;

  std::map<SourceId, Source> sources_;
};

}  // namespace tokura::coordinator
