#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench.h"
#include "cli/statistics.h"
#include "common/time.h"

namespace tokura::cli {

// What one transfer cost.
struct TransferCost {
  Duration time{};  // above zero
  uint64_t bytes = 0;
  Duration cpu_self{};  // processor time of this process
  Duration cpu_peer{};  // and of the one at the other end
};

// The same transfer by several ways, one after the other.
struct TransferCosts {
  TransferCost tokura;
  TransferCost raw;  // with one CRC pass at the receiver
  TransferCost raw_without_crc;
  std::optional<TransferCost> maybe_raw_warm;  // with the pass, to memory that was just used
};

// Turns transfers into the rows of one size and direction. Thread-compatible.
class TransferRows {
 public:
  void Add(const TransferCosts& costs);
  // NAME in GB/s, beside what `bound` says; NAME/cpu_client and NAME/cpu_node in ns/byte; NAME/warm
  // in GB/s, beside what `warm_bound` says, where that was measured.
  std::vector<BenchRow> Rows(const std::string& name, const std::string& bound,
                             const std::string& warm_bound) const;

 private:
  PairedSamples rate_;
  PairedSamples warm_;
  bool has_warm_ = false;
  PairedSamples cpu_client_;
  PairedSamples cpu_node_;
  std::vector<double> ratios_without_crc_;
};

}  // namespace tokura::cli
