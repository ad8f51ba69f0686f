#include "coordinator/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>

#include "common/check.h"
#include "common/sha256.h"

namespace tokura::coordinator {
namespace {

// Weights and costs multiply without overflow: 2^64 bytes are 2^54 KiB, times 1000 is below 2^64,
// and a cost is below 2^62.
using Product = unsigned __int128;

constexpr int kFractionBits = 56;  // of a cost
constexpr int kTableBits = 10;
using LogTable = std::array<uint64_t, (size_t{1} << kTableBits) + 1>;

// log2(x / 2^63) for x in [2^63, 2^64), in units of 2^-kFractionBits, one bit at a time: squaring a
// number of [1, 2) doubles its logarithm, and its integer part is the next bit.
uint64_t SlowLog2(uint64_t x) {
  uint64_t log = 0;
  for (int bit = kFractionBits - 1; bit >= 0; --bit) {
    const Product square = static_cast<Product>(x) * x;  // [2^126, 2^128)
    if (square >> 127 != 0) {
      log |= uint64_t{1} << bit;
      x = static_cast<uint64_t>(square >> 64);
    } else {
      x = static_cast<uint64_t>(square >> 63);
    }
  }
  return log;
}

const LogTable& Logs() {
  static const LogTable table = [] {
    LogTable logs;
    for (size_t i = 0; i + 1 < logs.size(); ++i) {
      logs[i] = SlowLog2((uint64_t{1} << 63) + (static_cast<uint64_t>(i) << (63 - kTableBits)));
    }
    logs.back() = uint64_t{1} << kFractionBits;
    return logs;
  }();
  return table;
}

// -log2(draw / 2^64) in units of 2^-kFractionBits, at least 1: what the draw, uniform, costs when
// the weight is 1. Between the rows of the table it runs straight, 2e-7 off at most: far less than
// chance, and the same everywhere.
uint64_t Cost(uint64_t draw, const LogTable& logs) {
  draw = std::max<uint64_t>(draw, 1);
  const int zeros = std::countl_zero(draw);
  const uint64_t mantissa = (draw << zeros) & ~(uint64_t{1} << 63);
  const uint64_t row = mantissa >> (63 - kTableBits);
  const uint64_t rest = mantissa & ((uint64_t{1} << (63 - kTableBits)) - 1);
  const uint64_t step = logs[row + 1] - logs[row];
  const uint64_t log =
      logs[row] + static_cast<uint64_t>((static_cast<Product>(step) * rest) >> (63 - kTableBits));
  return std::max<uint64_t>((static_cast<uint64_t>(zeros + 1) << kFractionBits) - log, 1);
}

// A bijection of 64 bits of which every output bit depends on every input bit (the finalizer of
// SplitMix64).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t LittleEndian(const void* bytes) {
  uint8_t in[8];
  std::memcpy(in, bytes, sizeof(in));
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) {
    value = value << 8 | in[i];
  }
  return value;
}

}  // namespace

Placement::Placement(const proto::ClusterState& state) : epoch_(state.epoch()) {
  Sha256Writer sha;
  for (int i = 0; i < state.members_size(); ++i) {
    const proto::Member& member = state.members(i);
    if (member.state() != proto::Member::UP || member.share_permille() == 0) {
      continue;
    }
    sha.Raw("tokura-placement-v1");
    sha.Raw(member.node());
    const Sha256Writer::Digest digest = sha.Finish();
    Candidate candidate;
    candidate.hash[0] = LittleEndian(digest.data());
    candidate.hash[1] = LittleEndian(digest.data() + 8);
    const uint64_t share = std::min<uint64_t>(member.share_permille(), 1000);
    candidate.weight = std::max<uint64_t>((member.capacity_bytes() >> 10) * share, 1);
    candidate.member = static_cast<uint32_t>(i);
    candidates_.push_back(candidate);
  }
  // Ties, which nobody will see, go by the hash of the name, whatever the members' order.
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.hash[0] != b.hash[0] ? a.hash[0] < b.hash[0] : a.hash[1] < b.hash[1];
  });
}

size_t Placement::Choose(const BlockKey& root, std::span<uint32_t> out) const {
  struct Best {
    uint64_t cost;
    uint64_t weight;
    uint32_t member;
  };
  TOKURA_CHECK(out.size() <= kChoicesMax);
  const LogTable& logs = Logs();
  const uint64_t low = LittleEndian(root.bytes.data());
  const uint64_t high = LittleEndian(root.bytes.data() + 8);
  std::array<Best, kChoicesMax> best;
  size_t count = 0;
  for (const Candidate& candidate : candidates_) {
    const uint64_t draw = Mix(Mix(low ^ candidate.hash[0]) ^ high ^ candidate.hash[1]);
    const Best next{Cost(draw, logs), candidate.weight, candidate.member};
    // cost / weight, compared without the division.
    size_t place = count;
    while (place > 0 && static_cast<Product>(next.cost) * best[place - 1].weight <
                            static_cast<Product>(best[place - 1].cost) * next.weight) {
      --place;
    }
    if (place >= out.size()) {
      continue;
    }
    count = std::min(count + 1, out.size());
    std::copy_backward(best.begin() + place, best.begin() + count - 1, best.begin() + count);
    best[place] = next;
  }
  for (size_t i = 0; i < count; ++i) {
    out[i] = best[i].member;
  }
  return count;
}

}  // namespace tokura::coordinator
