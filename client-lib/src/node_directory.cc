#include "client-lib/src/node_directory.h"

#include <algorithm>
#include <utility>

namespace tokura {
namespace {

NodeLink* FindAmong(const std::vector<std::shared_ptr<NodeLink>>& links, const std::string& node,
                    uint64_t incarnation) {
  for (const std::shared_ptr<NodeLink>& link : links) {
    if (link->usable() && link->node() == node && link->incarnation() == incarnation) {
      return link.get();
    }
  }
  return nullptr;
}

}  // namespace

uint64_t RendezvousWeight(const BlockKey& key, const std::string& node) {
  // FNV-1a over key and name, then the finaliser of SplitMix64, which spreads the last bytes.
  uint64_t hash = 0xcbf29ce484222325;
  const auto mix = [&hash](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const uint8_t byte : key.bytes) {
    mix(byte);
  }
  for (const char c : node) {
    mix(static_cast<uint8_t>(c));
  }
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

std::vector<NodeLink*> StaticDirectory::ForPut(const BlockKey& root) const {
  std::vector<std::pair<uint64_t, NodeLink*>> weighed;
  for (const std::shared_ptr<NodeLink>& link : links_) {
    if (link->usable()) {
      weighed.emplace_back(RendezvousWeight(root, link->node()), link.get());
    }
  }
  std::stable_sort(weighed.begin(), weighed.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<NodeLink*> links;
  for (const auto& [weight, link] : weighed) {
    // Two addresses of one node are one choice.
    const bool seen = std::any_of(links.begin(), links.end(), [&link = link](NodeLink* other) {
      return other->node() == link->node();
    });
    if (!seen) {
      links.push_back(link);
    }
  }
  return links;
}

std::vector<NodeLink*> StaticDirectory::ForLookup(const BlockKey& root) const {
  return ForPut(root);
}

NodeLink* StaticDirectory::Find(const std::string& node, uint64_t incarnation) const {
  return FindAmong(links_, node, incarnation);
}

std::vector<NodeLink*> ClusterDirectory::ForLookup(const BlockKey&) const {
  return {};
}

std::vector<NodeLink*> ClusterDirectory::ForPut(const BlockKey&) const {
  return {};
}

NodeLink* ClusterDirectory::Find(const std::string& node, uint64_t incarnation) const {
  return FindAmong(links_, node, incarnation);
}

const Match::Holder* ConnectedHolder(const NodeDirectory& directory, const Match& match,
                                     size_t block,
                                     const std::function<bool(const std::string&)>& passes) {
  const auto connected = [&](const Match::Holder& holder) {
    return (!passes || passes(holder.node)) &&
           directory.Find(holder.node, holder.incarnation) != nullptr;
  };
  const Match::Holder* maybe_holder = match.HolderOf(block);
  if (maybe_holder != nullptr && connected(*maybe_holder)) {
    return maybe_holder;
  }
  for (const Match::Run& run : match.alternates) {
    const bool covers =
        block >= run.first && block - run.first < run.count && run.holder < match.holders.size();
    if (covers && connected(match.holders[run.holder])) {
      return &match.holders[run.holder];
    }
  }
  return nullptr;
}

}  // namespace tokura
