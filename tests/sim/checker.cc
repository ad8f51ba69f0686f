#include "tests/sim/checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

static_assert(kHeads == kShards);  // one head each

// Whether everything that was asked for is equal.
bool EqualWhereAsked(const Checker::Reading& reading, uint32_t block, const BlockValues& one,
                     const BlockValues& other) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t side = 0; side < 2; ++side) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        if (reading.Asks(block, layer, head) &&
            one[layer][side][head] != other[layer][side][head]) {
          return false;
        }
      }
    }
  }
  return true;
}

// Groups that a reader needs of a block; a sliding group is needed at the end of a prefix only.
uint32_t GroupsNeeded(const Checker::Reading& reading, uint32_t block) {
  const bool tail = block + kWindowBlocks >= reading.prefix_blocks;
  return IsSliding(reading.chain) && tail ? 3 : 1;
}

}  // namespace

bool Checker::Reading::Asks(uint32_t block, uint32_t layer, uint32_t head) const {
  if (block < first_block || block >= first_block + blocks || head < first_shard ||
      head >= first_shard + shards) {
    return false;
  }
  if (IsSliding(chain)) {
    return (GroupsNeeded(*this, block) >> layer & 1) != 0;
  }
  return layer >= first_layer && layer < first_layer + layers;
}

void Checker::OnPut(uint32_t first_block, uint32_t blocks, const Candidate& candidate) {
  for (uint32_t block = first_block; block < first_block + blocks; ++block) {
    auto& of_key = candidates_[{universe_.chain(candidate.chain).keys()[block], block}];
    const auto known = std::find_if(of_key.begin(), of_key.end(), [&](const Candidate& other) {
      return other.variant == candidate.variant && other.chain == candidate.chain;
    });
    if (known == of_key.end()) {
      of_key.push_back(candidate);
    } else {
      ++known->writers;
    }
  }
}

void Checker::OnPutResult(uint32_t chain, uint32_t first_block, Variant variant,
                          const PutResult& result) {
  for (size_t i = 0; i < result.blocks.size(); ++i) {
    const uint32_t block = first_block + static_cast<uint32_t>(i);
    if (result.blocks[i].code() != absl::StatusCode::kCancelled) {
      continue;
    }
    for (Candidate& candidate : candidates_[{universe_.chain(chain).keys()[block], block}]) {
      if (candidate.variant == variant && candidate.chain == chain) {
        candidate.cancelled = true;
        if (candidate.seen) {
          Violation(absl::StrCat("block ", block, " of chain ", chain, ", variant ", variant,
                                 ": its put ended CANCELLED but a get had returned it"));
        }
      }
    }
  }
}

void Checker::OnGetResult(const Reading& reading, const KvBuffer& buffer, const GetResult& result) {
  if (result.blocks.size() != reading.blocks) {
    Violation(absl::StrCat("a get of ", reading.blocks, " blocks answered ", result.blocks.size()));
    return;
  }
  for (uint32_t i = 0; i < reading.blocks; ++i) {
    const absl::Status& status = result.blocks[i];
    const uint32_t block = reading.first_block + i;
    if (status.ok()) {
      CheckBlock(reading, block, result.codecs[i], buffer.Load(block));
      if (reading.exact_only && (result.codecs[i] != "raw" || result.declared_error[i] != 0)) {
        Violation(absl::StrCat("max_error 0 was answered by ", result.codecs[i]));
      }
      continue;
    }
    CheckMiss(reading, block, status);
  }
  CheckUntouched(reading, buffer);
}

void Checker::CheckMiss(const Reading& reading, uint32_t block, const absl::Status& status) {
  ++blocks_missed_;
  const bool damaged = damaged_.count(universe_.chain(reading.chain).keys()[block]) != 0;
  if (status.code() == absl::StatusCode::kDataLoss && !reading.flips) {
    if (!damaged) {
      Violation(absl::StrCat("DATA_LOSS where no bit was flipped: ", status.ToString()));
    }
    ++memory_flips_found_;
  }
  if (reading.calm && !damaged) {
    Violation(absl::StrCat("block ", block, " of chain ", reading.chain,
                           " was found and cannot be had: ", status.ToString()));
  }
  // A damaged block is asked for again elsewhere, and the last answer counts.
  if (status.code() == absl::StatusCode::kNotFound && reading.held && !damaged) {
    Violation(absl::StrCat("a leased block is gone: ", status.ToString()));
  }
}

void Checker::CheckBlock(const Reading& reading, uint32_t block, const std::string& codec,
                         const BlockValues& got) {
  ++blocks_verified_;
  const auto found = candidates_.find({universe_.chain(reading.chain).keys()[block], block});
  if (found != candidates_.end()) {
    for (Candidate& candidate : found->second) {
      const uint32_t needed = GroupsNeeded(reading, block);
      if (candidate.codec != codec || (candidate.group_mask & needed) != needed ||
          !EqualWhereAsked(reading, block, got,
                           universe_.Decoded(candidate.variant, candidate.chain, block, codec))) {
        continue;
      }
      candidate.seen = true;
      joint_blocks_verified_ += candidate.writers > 1 ? 1 : 0;
      if (candidate.cancelled) {
        Violation(absl::StrCat("a get returned variant ", candidate.variant, " of block ", block,
                               ", whose put ended CANCELLED"));
      }
      return;
    }
  }
  Violation(absl::StrCat("WRONG DATA: block ", block, " of chain ", reading.chain, " as ", codec,
                         " equals nothing that was put (layers ", reading.first_layer, "+",
                         reading.layers, ")"));
}

// What was not asked for belongs to the caller alone.
void Checker::CheckUntouched(const Reading& reading, const KvBuffer& buffer) {
  if (!buffer.GuardsEqual(reading.before)) {
    Violation("a get wrote outside its view");
  }
  for (uint32_t block = 0; block < kChainBlocks; ++block) {
    const BlockValues now = buffer.Load(block);
    const BlockValues before = KvBuffer::LoadFrom(reading.before, block);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t head = 0; head < kHeads; ++head) {
        if (!reading.Asks(block, layer, head) && (now[layer][0][head] != before[layer][0][head] ||
                                                  now[layer][1][head] != before[layer][1][head])) {
          Violation(absl::StrCat("a get wrote layer ", layer, ", head ", head, " of block ", block,
                                 ", which it was not asked for"));
        }
      }
    }
  }
}

void Checker::Violation(std::string what) {
  constexpr size_t kMax = 20;
  if (violations_.size() < kMax) {
    violations_.push_back(std::move(what));
  }
}

}  // namespace tokura::sim
