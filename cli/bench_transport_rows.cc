#include "cli/bench_transport_rows.h"

#include <algorithm>
#include <chrono>
#include <utility>

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

void TransferRows::Add(const TransferTrio& trio) {
  const double rate = GigabytesPerSecond(trio.tokura);
  rate_.Add({.value = rate, .bound = GigabytesPerSecond(trio.raw)});
  ratios_without_crc_.push_back(rate / GigabytesPerSecond(trio.raw_without_crc));
  cpu_client_.Add({.value = NanosecondsPerByte(trio.tokura.cpu_self, trio.tokura.bytes),
                   .bound = NanosecondsPerByte(trio.raw.cpu_self, trio.raw.bytes)});
  cpu_node_.Add({.value = NanosecondsPerByte(trio.tokura.cpu_peer, trio.tokura.bytes),
                 .bound = NanosecondsPerByte(trio.raw.cpu_peer, trio.raw.bytes)});
}

std::vector<BenchRow> TransferRows::Rows(const std::string& name, const std::string& bound) const {
  BenchRow row = rate_.Row(name, "GB/s", bound);
  row.ratio_without_crc = Quantile(ratios_without_crc_, 0.5);
  return {std::move(row), cpu_client_.Row(name + "/cpu_client", "ns/byte", "the same of raw UCX"),
          cpu_node_.Row(name + "/cpu_node", "ns/byte", "the same of raw UCX")};
}

}  // namespace tokura::cli
