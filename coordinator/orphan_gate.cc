#include "coordinator/orphan_gate.h"

#include <algorithm>
#include <utility>

namespace tokura::coordinator {

bool OrphanGate::Open(const proto::ClusterState& state, const Inventory& inventory, TimePoint now) {
  std::map<std::string, TimePoint, std::less<>> incomplete;
  const auto note = [&](const std::string& name) {
    const auto known = incomplete_since_.find(name);
    incomplete.emplace(name, known == incomplete_since_.end() ? now : known->second);
  };
  for (const NodeLife* life : inventory.Lives()) {
    if (!life->complete) {
      note(life->node);
    }
  }
  for (const proto::Member& member : state.members()) {
    if (inventory.Find(member.node()) == nullptr) {
      note(member.node());
    }
  }
  incomplete_since_ = std::move(incomplete);
  return state.epoch() != 0 &&
         std::all_of(incomplete_since_.begin(), incomplete_since_.end(),
                     [now](const auto& waiting) { return now - waiting.second >= kWaitMax; });
}

}  // namespace tokura::coordinator
