#include "client-lib/src/introductions.h"

#include <algorithm>
#include <utility>

#include "client-lib/src/cluster_map.h"
#include "client-lib/src/coordinators.h"
#include "common/check.h"

namespace tokura {

Introductions::~Introductions() {
  TOKURA_CHECK(waiters_.empty());
}

bool Introductions::Expects(const Node& node) const {
  const auto& members = environment_.map.state().members();
  const auto member = std::find_if(members.begin(), members.end(), [&](const proto::Member& m) {
    return m.node() == node.name && m.incarnation() == node.incarnation;
  });
  if (member != members.end()) {
    const NodeLink* maybe_link = MaybeLinkTo(*member);
    return maybe_link != nullptr && maybe_link->meeting();
  }
  // A life that was seen before is over. Of a later one only coordinators can tell.
  const auto seen = environment_.incarnations.find(node.name);
  const bool over = seen != environment_.incarnations.end() && node.incarnation <= seen->second;
  return !over && environment_.coordinators.MayAnswer();
}

bool Introductions::ExpectsAny(const std::vector<Node>& nodes) const {
  return std::any_of(nodes.begin(), nodes.end(),
                     [this](const Node& node) { return Expects(node); });
}

const NodeLink* Introductions::MaybeLinkTo(const proto::Member& member) const {
  const auto address = net::Address::Parse(member.address());
  for (const std::shared_ptr<NodeLink>& link : environment_.links) {
    if (address.ok() && link->address() == *address) {
      return link.get();
    }
  }
  return nullptr;
}

void Introductions::AddExpectedHolders(const Match& match, size_t block,
                                       std::vector<Node>* to) const {
  const auto add = [&](const Match::Holder& holder) {
    if (Node node{holder.node, holder.incarnation}; Expects(node)) {
      to->push_back(std::move(node));
    }
  };
  if (const Match::Holder* maybe_holder = match.HolderOf(block); maybe_holder != nullptr) {
    add(*maybe_holder);
  }
  for (const Match::Run& run : match.alternates) {
    const bool covers =
        block >= run.first && block - run.first < run.count && run.holder < match.holders.size();
    if (covers) {
      add(match.holders[run.holder]);
    }
  }
}

uint64_t Introductions::Wait(std::vector<Node> nodes, TimePoint until, Task done) {
  const uint64_t id = ++last_id_;
  Waiter& waiter = waiters_[id];
  waiter.nodes = std::move(nodes);
  waiter.done = std::move(done);
  const TimePoint now = environment_.executor.Now();
  const Duration most = environment_.coordinators.environment().options.progress_timeout / 2;
  CallAt(ExpectsAny(waiter.nodes) ? std::min(until, After(now, most)) : now, id);
  // Where some node is a stranger, the members here are old.
  environment_.map.AskSoon();
  return id;
}

void Introductions::Cancel(uint64_t id) {
  if (const auto found = waiters_.find(id); found != waiters_.end()) {
    environment_.executor.CancelTimer(found->second.timer);
    waiters_.erase(found);
  }
}

void Introductions::OnChange() {
  for (auto& [id, waiter] : waiters_) {
    if (ExpectsAny(waiter.nodes)) {
      continue;
    }
    // By the timer, so that nobody is called inside a change.
    environment_.executor.CancelTimer(waiter.timer);
    CallAt(environment_.executor.Now(), id);
  }
}

void Introductions::CallAt(TimePoint due, uint64_t id) {
  waiters_[id].timer = environment_.executor.RunAt(due, [this, id] {
    Waiter over = std::move(waiters_.extract(id).mapped());
    over.done();
  });
}

}  // namespace tokura
