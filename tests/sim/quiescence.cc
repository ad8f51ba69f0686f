#include "tests/sim/quiescence.h"

#include <algorithm>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

bool Quiescence::Agree(const WireWitness& witness) const {
  const uint64_t epoch = cluster_.coordinator(0).coordinator->accounting().epoch;
  for (size_t i = 0; i < cluster_.coordinators(); ++i) {
    if (cluster_.coordinator(i).coordinator->accounting().epoch != epoch) {
      return false;
    }
  }
  for (size_t i = 0; i < cluster_.clients(); ++i) {
    if (witness.EpochOf(*cluster_.client(i).host) != epoch) {
      return false;
    }
  }
  return epoch > 0;
}

void Quiescence::CheckMembership(const WireWitness& witness) {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    if (cluster_.node(i).node->superseded()) {
      checker_.Violation(absl::StrCat(cluster_.node(i).name, " takes itself for a zombie"));
    }
  }
  if (!cluster_.coordinated()) {
    return;
  }
  // A WATCH, or its answer, that was lost on the way is asked again after its deadline.
  if (!wait_until_([&] { return Agree(witness); }, seconds(12))) {
    for (size_t i = 0; i < cluster_.clients(); ++i) {
      const SimHost& host = *cluster_.client(i).host;
      checker_.Violation(
          absl::StrCat("EPOCHS DIFFER: ", host.name(), " goes by ", witness.EpochOf(host)));
    }
  }
  for (size_t i = 0; i < cluster_.coordinators(); ++i) {
    const auto got = cluster_.coordinator(i).coordinator->accounting();
    if (got.members != cluster_.nodes()) {
      checker_.Violation(absl::StrCat("coordinator ", i, " goes by epoch ", got.epoch, " with ",
                                      got.members, " members; there are ", cluster_.nodes(),
                                      " nodes"));
    }
  }
}

void Quiescence::CheckNodesIdle() {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    const node::Node::Accounting got = cluster_.node(i).node->accounting();
    if (got.pinned_forms + got.leases + got.incomplete_blocks + got.connections + got.checks != 0) {
      checker_.Violation(absl::StrCat("at the end node ", i, " has ", got.pinned_forms,
                                      " pinned forms, ", got.leases, " leases, ",
                                      got.incomplete_blocks, " incomplete blocks, ",
                                      got.connections, " connections, ", got.checks, " checks"));
    }
  }
}

void Quiescence::CheckIndexes() {
  std::set<BlockKey> keys;
  uint64_t forms = 0;
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    for (const MemoryAudit::HeldForm& form : audit_.Held(i)) {
      keys.insert(form.key);
      ++forms;
    }
  }
  for (size_t i = 0; i < cluster_.coordinators(); ++i) {
    const auto got = cluster_.coordinator(i).coordinator->accounting();
    if (got.blocks != keys.size() || got.forms != forms || got.sources_dropped != 0) {
      checker_.Violation(absl::StrCat("INDEX: coordinator ", i, " knows ", got.blocks,
                                      " blocks in ", got.forms, " forms and sweeps ",
                                      got.sources_dropped, " inventories; the nodes hold ",
                                      keys.size(), " in ", forms));
    }
  }
}

Quiescence::Holdings Quiescence::HoldingsOf(size_t first_node, size_t nodes) const {
  Holdings holdings;
  for (size_t i = first_node; i < first_node + nodes; ++i) {
    for (const MemoryAudit::HeldForm& form : audit_.Held(i)) {
      holdings[form.key].push_back(form.group_mask);
    }
  }
  return holdings;
}

// The longest prefix of which some form of every block has the groups that are needed there.
size_t Quiescence::Usable(uint32_t chain, const Holdings& holdings) const {
  const auto usable = [&](size_t blocks) {
    for (size_t block = 0; block < blocks; ++block) {
      const uint32_t needed = IsSliding(chain) && block + kWindowBlocks >= blocks ? 3 : 1;
      const auto held = holdings.find(universe_.chain(chain).keys()[block]);
      if (held == holdings.end() ||
          std::none_of(held->second.begin(), held->second.end(),
                       [&](uint32_t groups) { return (groups & needed) == needed; })) {
        return false;
      }
    }
    return true;
  };
  size_t blocks = kChainBlocks;
  while (!usable(blocks)) {
    --blocks;
  }
  return blocks;
}

// Without coordinators a prefix is found where it lies on one node.
size_t Quiescence::Expected(uint32_t chain) const {
  if (cluster_.coordinated()) {
    return Usable(chain, HoldingsOf(0, cluster_.nodes()));
  }
  size_t longest = 0;
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    longest = std::max(longest, Usable(chain, HoldingsOf(i, 1)));
  }
  return longest;
}

void Quiescence::CheckLookups() {
  for (size_t i = 0; i < cluster_.clients(); ++i) {
    ClientProcess& auditor = cluster_.client(i);
    for (uint32_t chain = 0; chain < kChains; ++chain) {
      auditor.host->loop().Enter([&] { Look(auditor, chain); });
    }
  }
  Await();
  CheckNothingPinned();
}

void Quiescence::Await() {
  if (!wait_until_([this] { return waiting_ == 0; }, seconds(5))) {
    checker_.Violation("a probe does not end");
  }
}

void Quiescence::Look(ClientProcess& auditor, uint32_t chain) {
  LookupOptions options;
  options.touch = chain % 2 == 0;
  ++waiting_;
  // What another auditor's get finds damaged may go meanwhile; nothing comes.
  const size_t before = Expected(chain);
  auditor.core->Lookup(
      universe_.ns(chain), universe_.chain(chain), options,
      [this, &auditor, chain, before](const absl::StatusOr<Match>& match) {
        --waiting_;
        ++lookups_;
        CheckNothingPinned();
        const size_t found = match.ok() ? match->blocks() : 0;
        const size_t expected = Expected(chain);
        // A single node answers with its best forms, which need not have all
        // groups.
        const bool exact = cluster_.coordinated() || !IsSliding(chain);
        if (found > before || (exact && found < expected)) {
          checker_.Violation(absl::StrCat("NOT FOUND: ", found, " blocks of chain ", chain,
                                          " through ", auditor.host->name(), "; ", expected,
                                          " are held, ", before, " were"));
        }
        if (found > 0) {
          Load(auditor, chain, *match);
        }
      });
}

void Quiescence::Load(ClientProcess& auditor, uint32_t chain, const Match& match) {
  auto reading = std::make_shared<Checker::Reading>();
  const auto buffer = std::make_shared<KvBuffer>();
  buffer->Scramble(cluster_.random());
  reading->chain = chain;
  reading->blocks = reading->prefix_blocks = static_cast<uint32_t>(match.blocks());
  reading->before = buffer->Copy();
  reading->calm = true;
  ++waiting_;
  GetOptions options;
  options.deadline = seconds(2);
  auditor.core->Get(universe_.ns(chain), match, buffer->View(chain, 0, kShards), options,
                    [this, reading, buffer](const GetResult& result) {
                      --waiting_;
                      checker_.OnGetResult(*reading, *buffer, result);
                      for (uint32_t block = 0; block < result.blocks.size(); ++block) {
                        if (!result.blocks[block].ok()) {
                          lost_.emplace(reading->chain, block);
                        }
                      }
                    });
}

void Quiescence::CheckHealing() {
  // Nodes check what they are told of, and coordinators hear of what is gone.
  constexpr Duration kHealing = milliseconds(500);
  cluster_.scheduler().RunFor(kHealing);  // from what the lookups before have met
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    if (const std::optional<BlockKey> key = audit_.FlipOne(i)) {
      checker_.OnMemoryFlip(*key);
    }
  }
  // Each round meets some damage that nobody had met before: of another node, or of a form that
  // was not the best of its block.
  size_t rounds = 3 * cluster_.nodes();
  for (size_t lost = 0;; lost = lost_.size()) {
    lost_.clear();
    CheckLookups();
    cluster_.scheduler().RunFor(kHealing);
    CheckChecksEnded();
    healed_ += lost > lost_.size() ? lost - lost_.size() : 0;
    if (lost_.empty()) {
      return;
    }
    if (rounds-- == 0) {
      checker_.Violation(absl::StrCat("POISONED: ", lost_.size(), " blocks, the first one ",
                                      lost_.begin()->second, " of chain ", lost_.begin()->first,
                                      ", are put again and cannot be had"));
      return;
    }
    for (const auto& [chain, block] : lost_) {
      PutAgain(cluster_.client(0), chain, block);
    }
    cluster_.scheduler().RunFor(kHealing);
  }
}

void Quiescence::CheckChecksEnded() {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    const node::Node::Accounting got = cluster_.node(i).node->accounting();
    if (got.checks + got.pinned_forms != 0) {
      checker_.Violation(absl::StrCat("node ", i, " does not end ", got.checks, " checks and pins ",
                                      got.pinned_forms, " forms"));
    }
  }
}

// A damaged form that a put took for held may be removed before the put is answered, which then
// says so: ABORTED, and whoever still wants the block stored puts it once more.
void Quiescence::PutAgain(ClientProcess& writer, uint32_t chain, uint32_t block) {
  constexpr int kTriesMax = 3;
  absl::Status status = absl::AbortedError("");
  for (int i = 0; i < kTriesMax && absl::IsAborted(status); ++i) {
    status = PutOnce(writer, chain, block);
  }
  if (!status.ok()) {
    checker_.Violation(absl::StrCat("POISONED: block ", block, " of chain ", chain,
                                    " cannot be put again: ", status.ToString()));
  }
}

absl::Status Quiescence::PutOnce(ClientProcess& writer, uint32_t chain, uint32_t block) {
  const Variant variant = ++last_variant_;
  const auto buffer = std::make_shared<KvBuffer>();
  buffer->Store(block, KvUniverse::Original(variant, chain, block));
  PutOptions options;
  options.codec = "raw";
  options.first_block = block;
  options.blocks = 1;
  options.deadline = seconds(2);
  checker_.OnPut(block, 1, {variant, chain, *options.codec, IsSliding(chain) ? 3u : 1u});
  // Owners: this call and the put, should it not end.
  const auto status = std::make_shared<absl::Status>(absl::UnknownError("the put does not end"));
  ++waiting_;
  writer.host->loop().Enter([&] {
    writer.core->Put(
        universe_.ns(chain), universe_.chain(chain), buffer->View(chain, 0, kShards), options,
        [buffer] {},
        [this, status](const PutResult& result) {
          --waiting_;
          *status = result.blocks.at(0);
        });
  });
  Await();
  return *status;
}

uint64_t Quiescence::PinnedForms() {
  uint64_t pinned = 0;
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    pinned += cluster_.node(i).node->accounting().pinned_forms;
  }
  return pinned;
}

// Everything that is found of a chain, leased; nothing when that is nothing.
std::optional<Match> Quiescence::Hold(ClientProcess& auditor, uint32_t chain) {
  std::optional<Match> held;
  ++waiting_;
  auditor.host->loop().Enter([&] {
    auditor.core->Lookup(universe_.ns(chain), universe_.chain(chain), {},
                         [&](const absl::StatusOr<Match>& match) {
                           if (!match.ok() || match->blocks() == 0) {
                             --waiting_;
                             return;
                           }
                           auditor.core->Acquire(universe_.ns(chain), *match, {},
                                                 [&](const absl::StatusOr<Match>& acquired) {
                                                   --waiting_;
                                                   if (acquired.ok() && acquired->held()) {
                                                     held = *acquired;
                                                   }
                                                 });
                         });
  });
  Await();
  return held;
}

void Quiescence::CheckLeases() {
  ClientProcess& one = cluster_.client(0);
  ClientProcess& other = cluster_.client(1);
  for (uint32_t chain = 0; chain < kChains; ++chain) {
    const std::optional<Match> released = Hold(one, chain);
    const std::optional<Match> kept = Hold(other, chain);
    uint64_t pinned = 0;
    for (int i = 0; i < 2 && released; ++i) {
      one.host->loop().Enter([&] { one.core->Release(*released); });
      cluster_.scheduler().RunFor(milliseconds(20));
      const uint64_t before = std::exchange(pinned, PinnedForms());
      if (i == 1 && pinned != before) {
        checker_.Violation(absl::StrCat("RELEASED TWICE: of ", before, " forms that ",
                                        other.host->name(), " pins ", pinned, " are left"));
      }
    }
    if (!kept) {
      continue;
    }
    const absl::StatusOr<Match> carried = Match::Parse(kept->Serialize());
    if (!carried.ok()) {
      checker_.Violation(absl::StrCat("a match does not travel: ", carried.status().ToString()));
      return;
    }
    one.host->loop().Enter([&] { Load(one, chain, *carried); });
    Await();
    other.host->loop().Enter([&] { other.core->Release(*kept); });
    ++leases_;
  }
  cluster_.scheduler().RunFor(milliseconds(50));
  CheckNothingPinned();
}

// Lookups pin nothing and lease nothing. Where there is damage, a check that a get has asked for
// pins, and so does what is still on its way to a get that has turned to another node;
// CheckChecksEnded sees that end.
void Quiescence::CheckNothingPinned() {
  if (waiting_ > 0) {
    return;  // A get may be under way.
  }
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    const node::Node::Accounting got = cluster_.node(i).node->accounting();
    if (got.leases != 0 || (got.pinned_forms != 0 && !checker_.memory_flipped())) {
      checker_.Violation(absl::StrCat("after a probe node ", i, " has ", got.pinned_forms,
                                      " pinned forms, ", got.leases, " leases"));
    }
  }
}

void Quiescence::CheckRemoval() {
  ClientProcess& auditor = cluster_.client(0);
  for (uint32_t chain = 0; chain < kChains; ++chain) {
    const auto keys = universe_.chain(chain).keys();
    ++waiting_;
    auditor.host->loop().Enter([&] {
      auditor.core->Remove(universe_.ns(chain), {keys.begin(), keys.end()},
                           [this](const RemoveResult&) { --waiting_; });
    });
  }
  if (!wait_until_([this] { return waiting_ == 0; }, seconds(5))) {
    checker_.Violation("the final removal does not end");
  }
  // Coordinators hear of it.
  cluster_.scheduler().RunFor(milliseconds(500));
  CheckEmpty();
}

void Quiescence::CheckEmpty() {
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    const node::Node::Accounting got = cluster_.node(i).node->accounting();
    if (got.used_bytes != 0 || got.blocks != 0) {
      checker_.Violation(absl::StrCat("node ", i, " is empty but holds ", got.used_bytes,
                                      " bytes, ", got.blocks, " blocks"));
    }
  }
  for (size_t i = 0; i < cluster_.coordinators(); ++i) {
    const auto got = cluster_.coordinator(i).coordinator->accounting();
    if (got.blocks != 0 || got.forms != 0) {
      checker_.Violation(absl::StrCat("INDEX: coordinator ", i, " knows ", got.blocks, " blocks, ",
                                      got.forms, " forms of empty nodes"));
    }
  }
}

}  // namespace tokura::sim
