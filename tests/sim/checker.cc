#include "tests/sim/checker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

bool LayersEqual(const BlockValues& one, const BlockValues& other, uint32_t first, uint32_t count) {
  return std::equal(one.begin() + first, one.begin() + first + count, other.begin() + first);
}

}  // namespace

void Checker::OnPut(uint32_t chain, uint32_t first_block, uint32_t blocks, Variant variant,
                    const std::string& codec) {
  for (uint32_t block = first_block; block < first_block + blocks; ++block) {
    auto& of_key = candidates_[{universe_.chain(chain).keys()[block], block}];
    const auto known = std::find_if(of_key.begin(), of_key.end(), [&](const Candidate& candidate) {
      return candidate.variant == variant && candidate.chain == chain;
    });
    if (known == of_key.end()) {
      of_key.push_back({variant, chain, codec});
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
      if (candidate.codec != codec ||
          !LayersEqual(got, universe_.Decoded(candidate.variant, candidate.chain, block, codec),
                       reading.first_layer, reading.layers)) {
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

// Layers and blocks that were not asked for belong to the caller alone.
void Checker::CheckUntouched(const Reading& reading, const KvBuffer& buffer) {
  if (!buffer.GuardsEqual(reading.before)) {
    Violation("a get wrote outside its view");
  }
  const uint32_t end = reading.first_layer + reading.layers;
  for (uint32_t block = 0; block < kChainBlocks; ++block) {
    const bool asked = block >= reading.first_block && block < reading.first_block + reading.blocks;
    const BlockValues now = buffer.Load(block);
    const BlockValues before = KvBuffer::LoadFrom(reading.before, block);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      const bool may_change = asked && layer >= reading.first_layer && layer < end;
      if (!may_change && now[layer] != before[layer]) {
        Violation(absl::StrCat("a get wrote layer ", layer, " of block ", block,
                               ", which it was not asked for"));
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
