#pragma once

#include <cstdint>
#include <string>
#include <utility>
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
  // The same number for each pair: other bounds, in the order of TransferRows' Bounds.
  std::vector<TransferCost> others;
};

// A bound that stands beside the first one in a row of its own, NAME/suffix.
struct OtherBound {
  std::string suffix;
  std::string text;
};

// Turns transfers into the rows of one size and direction. Thread-compatible.
class TransferRows {
 public:
  explicit TransferRows(std::vector<OtherBound> others)
      : others_(std::move(others)), other_rates_(others_.size()) {}

  // `costs` has one of each other bound.
  void Add(const TransferCosts& costs);
  // NAME in GB/s, beside what `bound` says, and beside each other bound; NAME/cpu_client and
  // NAME/cpu_node in ns/byte.
  std::vector<BenchRow> Rows(const std::string& name, const std::string& bound) const;

 private:
  const std::vector<OtherBound> others_;
  PairedSamples rate_;
  std::vector<PairedSamples> other_rates_;
  PairedSamples cpu_client_;
  PairedSamples cpu_node_;
  std::vector<double> ratios_without_crc_;
};

}  // namespace tokura::cli
