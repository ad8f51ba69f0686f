#include "tests/sim/scenario.h"

#include <utility>

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kMeeting = milliseconds(500);
constexpr Duration kStep = milliseconds(1);
constexpr Duration kOperationLimit = seconds(5);

}  // namespace

Scenario::Scenario(const ClusterOptions& options)
    : cluster_(options), checker_(universe_), audit_(cluster_, checker_) {
  RunFor(kMeeting);
}

void Scenario::RunFor(Duration duration) {
  cluster_.scheduler().RunFor(duration);
  audit_.Check();
}

bool Scenario::RunUntil(const std::function<bool()>& condition, Duration limit) {
  const TimePoint end = cluster_.scheduler().Now() + limit;
  while (!condition() && cluster_.scheduler().Now() < end) {
    cluster_.scheduler().RunFor(kStep);
  }
  audit_.Check();
  return condition();
}

PutResult Scenario::Put(size_t client, const Writing& writing) {
  ClientProcess& process = cluster_.client(client);
  const auto buffer = std::make_shared<KvBuffer>();
  const uint32_t end = writing.first_block + writing.blocks;
  for (uint32_t block = writing.first_block; block < end; ++block) {
    buffer->Store(block, KvUniverse::Original(writing.variant, writing.chain, block));
  }
  const uint32_t groups = IsSliding(writing.chain) ? 3 : 1;
  checker_.OnPut(writing.first_block, writing.blocks,
                 {writing.variant, writing.chain, writing.expected, groups});
  PutOptions options;
  options.codec = writing.codec;
  options.first_block = writing.first_block;
  options.blocks = writing.blocks;
  options.deadline = seconds(2);
  const auto result = std::make_shared<std::optional<PutResult>>();  // shared with the callback
  process.host->loop().Enter([&] {
    process.core->Put(
        universe_.ns(writing.chain), universe_.chain(writing.chain),
        buffer->View(writing.chain, 0, kShards), options, [buffer] {},
        [result](const PutResult& stored) { *result = stored; });
  });
  if (!RunUntil([&] { return result->has_value(); }, kOperationLimit)) {
    checker_.Violation("a put does not end");
    return {};
  }
  return **result;
}

Match Scenario::Lookup(size_t client, uint32_t chain, Touch touch) {
  ClientProcess& process = cluster_.client(client);
  LookupOptions options;
  options.touch = touch == Touch::kYes;
  const auto found = std::make_shared<std::optional<Match>>();  // shared with the callback
  process.host->loop().Enter([&] {
    process.core->Lookup(
        universe_.ns(chain), universe_.chain(chain), options,
        [found](const absl::StatusOr<Match>& match) { *found = match.ok() ? *match : Match(); });
  });
  if (!RunUntil([&] { return found->has_value(); }, kOperationLimit)) {
    checker_.Violation("a lookup does not end");
    return {};
  }
  return **found;
}

Match Scenario::Acquire(size_t client, uint32_t chain, const Match& match) {
  ClientProcess& process = cluster_.client(client);
  const auto held = std::make_shared<std::optional<Match>>();  // shared with the callback
  process.host->loop().Enter([&] {
    process.core->Acquire(universe_.ns(chain), match, {},
                          [held](const absl::StatusOr<Match>& acquired) {
                            *held = acquired.ok() && acquired->held() ? *acquired : Match();
                          });
  });
  if (!RunUntil([&] { return held->has_value(); }, kOperationLimit)) {
    checker_.Violation("an acquire does not end");
    return {};
  }
  return **held;
}

void Scenario::Remove(size_t client, uint32_t chain, uint32_t block) {
  ClientProcess& process = cluster_.client(client);
  const auto done = std::make_shared<bool>(false);  // shared with the callback
  process.host->loop().Enter([&] {
    process.core->Remove(universe_.ns(chain), {universe_.chain(chain).keys()[block]},
                         [done](const RemoveResult&) { *done = true; });
  });
  if (!RunUntil([&] { return *done; }, kOperationLimit)) {
    checker_.Violation("a remove does not end");
  }
}

Scenario::GetRef Scenario::StartGet(size_t client, const Match& match, const Reading& reading) {
  ClientProcess& process = cluster_.client(client);
  const auto buffer = std::make_shared<KvBuffer>();
  buffer->Scramble(cluster_.random());
  Checker::Reading checked;
  checked.chain = reading.chain;
  checked.blocks = checked.prefix_blocks = static_cast<uint32_t>(match.blocks());
  checked.first_shard = reading.first_shard;
  checked.shards = reading.shards;
  checked.held = reading.held;
  checked.before = buffer->Copy();
  GetOptions options;
  options.deadline = seconds(2);
  GetRef result = std::make_shared<std::optional<GetResult>>();
  process.host->loop().Enter([&] {
    process.core->Get(universe_.ns(reading.chain), match,
                      buffer->View(reading.chain, reading.first_shard, reading.shards), options,
                      [this, &process, buffer, checked, result](const GetResult& got) {
                        if (!process.ghost) {
                          checker_.OnGetResult(checked, *buffer, got);
                        }
                        *result = got;
                      });
  });
  return result;
}

GetResult Scenario::Get(size_t client, const Match& match, const Reading& reading) {
  const GetRef result = StartGet(client, match, reading);
  if (!RunUntil([&] { return result->has_value(); }, kOperationLimit)) {
    checker_.Violation("a get does not end");
    return {};
  }
  return **result;
}

uint64_t Scenario::Sum(uint64_t node::Node::Accounting::*what) {
  uint64_t sum = 0;
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    sum += cluster_.node(i).node->accounting().*what;
  }
  return sum;
}

uint64_t Scenario::leases() {
  return Sum(&node::Node::Accounting::leases);
}

uint64_t Scenario::pinned_forms() {
  return Sum(&node::Node::Accounting::pinned_forms);
}

uint64_t Scenario::orphaned_blocks() {
  return Sum(&node::Node::Accounting::orphaned_blocks);
}

uint64_t Scenario::blocks() {
  return Sum(&node::Node::Accounting::blocks);
}

uint64_t Scenario::used_bytes() {
  return Sum(&node::Node::Accounting::used_bytes);
}

std::set<uint32_t> Scenario::Held(uint32_t chain) {
  const std::span<const BlockKey> keys = universe_.chain(chain).keys();
  std::set<uint32_t> held;
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    for (const MemoryAudit::HeldForm& form : audit_.Held(i)) {
      for (uint32_t block = 0; block < keys.size(); ++block) {
        if (keys[block] == form.key) {
          held.insert(block);
        }
      }
    }
  }
  return held;
}

std::vector<std::string> Scenario::End() {
  audit_.CheckAll();
  cluster_.Heal();
  cluster_.StopClients();
  RunFor(milliseconds(50));
  cluster_.StopNodes();
  cluster_.scheduler().RunFor(milliseconds(100));
  cluster_.StopCoordinators();
  const TimePoint end = cluster_.scheduler().Now() + seconds(10);
  while (!cluster_.AllEnded() && cluster_.scheduler().Now() < end) {
    cluster_.scheduler().RunFor(milliseconds(20));
  }
  if (!cluster_.AllEnded()) {
    checker_.Violation("a process does not end");
  }
  return checker_.violations();
}

}  // namespace tokura::sim
