#include "cli/bench_transport_rows.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"

namespace tokura::cli {
namespace {

double GigabytesPerSecond(const TransferCost& cost) {
  return static_cast<double>(cost.bytes) / 1e9 / std::chrono::duration<double>(cost.time).count();
}

// A bound must be positive, and the processor clock may not have moved.
double NanosecondsPerByte(Duration cpu, uint64_t bytes) {
  return std::max(static_cast<double>(cpu.count()), 1.0) / static_cast<double>(bytes);
}

}  // namespace

void TransferRows::Add(const TransferCosts& costs) {
  const double rate = GigabytesPerSecond(costs.tokura);
  rate_.Add({.value = rate, .bound = GigabytesPerSecond(costs.raw)});
  TOKURA_CHECK(costs.others.size() == others_.size());
  for (size_t i = 0; i < others_.size(); ++i) {
    other_rates_[i].Add({.value = rate, .bound = GigabytesPerSecond(costs.others[i])});
  }
  ratios_without_crc_.push_back(rate / GigabytesPerSecond(costs.raw_without_crc));
  cpu_client_.Add({.value = NanosecondsPerByte(costs.tokura.cpu_self, costs.tokura.bytes),
                   .bound = NanosecondsPerByte(costs.raw.cpu_self, costs.raw.bytes)});
  cpu_node_.Add({.value = NanosecondsPerByte(costs.tokura.cpu_peer, costs.tokura.bytes),
                 .bound = NanosecondsPerByte(costs.raw.cpu_peer, costs.raw.bytes)});
}

std::vector<BenchRow> TransferRows::Rows(const std::string& name, const std::string& bound) const {
  BenchRow row = rate_.Row(name, "GB/s", bound);
  row.ratio_without_crc = Quantile(ratios_without_crc_, 0.5);
  std::vector<BenchRow> rows = {std::move(row)};
  for (size_t i = 0; i < others_.size(); ++i) {
    rows.push_back(other_rates_[i].Row(name + "/" + others_[i].suffix, "GB/s", others_[i].text));
  }
  rows.push_back(cpu_client_.Row(name + "/cpu_client", "ns/byte", "the same of raw UCX"));
  rows.push_back(cpu_node_.Row(name + "/cpu_node", "ns/byte", "the same of raw UCX"));
  return rows;
}

}  // namespace tokura::cli
