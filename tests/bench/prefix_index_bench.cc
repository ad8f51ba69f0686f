// The coordinator's index without a coordinator: absorbs an inventory of BLOCKS blocks in chains of
// 1,024, batch by batch as they come from the wire, then looks chains up.
//
//     bench_prefix_index BLOCKS
//
// Times are CPU time of the process, so that a busy machine disturbs them little.

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "common/check.h"
#include "common/cpu_time.h"
#include "coordinator/inventory.h"
#include "coordinator/prefix_index.h"

namespace tokura::coordinator {
namespace {

constexpr uint64_t kChain = 1024;
constexpr uint64_t kBatch = 1024;

class CountingSink : public PrefixIndexSink {
 public:
  void Touched(NodeSlot, const BlockKey&) override { ++events; }
  void Orphaned(NodeSlot, const BlockKey&) override { ++events; }
  uint64_t events = 0;
};

uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

BlockKey Key(uint64_t block) {
  const uint64_t halves[2] = {Mix(2 * block + 1), Mix(2 * block + 2)};
  BlockKey key;
  std::memcpy(key.bytes.data(), halves, sizeof(halves));
  return key;
}

double CpuMicros() {
  return std::chrono::duration<double, std::micro>(ProcessCpuTime(0).value()).count();
}

std::string BatchBytes(uint64_t first, uint64_t blocks) {
  proto::InventoryBatch batch;
  batch.set_node("node");
  batch.set_incarnation(1);
  batch.set_snapshot(1);
  batch.set_chunk(static_cast<uint32_t>(first / kBatch));
  batch.set_last_chunk(first + kBatch >= blocks);
  proto::FormClass& form_class = *batch.add_classes();
  form_class.set_codec("kivi4");
  form_class.set_group_mask(1);
  form_class.set_shards(1);
  form_class.set_fidelity(kWireQuantized);
  for (uint64_t block = first; block < std::min(blocks, first + kBatch); ++block) {
    const BlockKey key = Key(block);
    const BlockKey parent = block % kChain == 0 ? BlockKey{} : Key(block - 1);
    batch.mutable_keys()->append(reinterpret_cast<const char*>(key.bytes.data()), BlockKey::kBytes);
    batch.mutable_parents()->append(reinterpret_cast<const char*>(parent.bytes.data()),
                                    BlockKey::kBytes);
    batch.add_forms(1);
    batch.add_form_class(0);
    batch.add_stored_bytes(300'000);
    batch.add_error_mean(0.1f);
    batch.add_error_max(0.2f);
  }
  return batch.SerializeAsString();
}

void Absorb(Inventory& inventory, const PrefixIndex& index, uint64_t blocks) {
  double total = 0;
  double worst = 0;
  for (uint64_t first = 0; first < blocks; first += kBatch) {
    const std::string bytes = BatchBytes(first, blocks);
    const double begin = CpuMicros();
    proto::InventoryBatch batch;
    TOKURA_CHECK(batch.ParseFromString(bytes) && inventory.Apply(batch).ok());
    const double spent = CpuMicros() - begin;
    total += spent;
    worst = std::max(worst, spent);
  }
  std::printf("absorb: %.0f ms per 10^6 records, the slowest batch of %d %.0f us\n",
              total * 1e3 / static_cast<double>(blocks), static_cast<int>(kBatch), worst);
  std::printf("memory: %.1f B per block\n",
              static_cast<double>(index.memory_bytes()) / static_cast<double>(blocks));
}

void LookUp(PrefixIndex& index, uint64_t blocks, size_t keys) {
  const std::array<NodeStanding, 1> nodes = {NodeStanding{NodeStanding::Use::kUsable, 0}};
  const AcceptRule accept;
  std::vector<double> times;
  std::vector<BlockKey> chain(keys);
  LocateResult result;
  TimePoint now{};
  for (uint64_t repetition = 0; repetition < 300; ++repetition) {
    // Whole chains from anywhere, one after another where more is asked for than one has.
    for (size_t i = 0; i < keys; ++i) {
      const uint64_t from =
          Mix(repetition * 64 + i / kChain) % std::max(blocks / kChain, uint64_t{1});
      chain[i] = Key((from * kChain + i % kChain) % blocks);
    }
    now += std::chrono::milliseconds(10);
    LocateQuery query;
    query.keys = chain;
    query.accept = &accept;
    query.nodes = nodes;
    query.touch = LocateQuery::Touch::kYes;
    query.now = now;
    const double begin = CpuMicros();
    index.Locate(query, result);
    times.push_back(CpuMicros() - begin);
    TOKURA_CHECK(result.prefix_blocks == keys);
  }
  std::sort(times.begin(), times.end());
  const auto at = [&](double part) { return times[static_cast<size_t>(300 * part)]; };
  std::printf("locate %5zu keys: p10 %.1f us, median %.1f us, p90 %.1f us, %.1f ns per key\n", keys,
              at(0.1), at(0.5), at(0.9), at(0.5) * 1e3 / static_cast<double>(keys));
}

int Main(uint64_t blocks) {
  CountingSink sink;
  auto index = PrefixIndex::Create({}, sink);
  TOKURA_CHECK(index.ok());
  Inventory inventory(**index);
  TOKURA_CHECK(inventory.Admit("node", 1).ok());
  Absorb(inventory, **index, blocks);
  for (const size_t keys : {size_t{64}, size_t{1024}, size_t{16384}}) {
    LookUp(**index, blocks, keys);
  }
  return 0;
}

}  // namespace
}  // namespace tokura::coordinator

int main(int argc, char** argv) {
  const uint64_t blocks = argc == 2 ? std::strtoull(argv[1], nullptr, 10) : 0;
  if (blocks < tokura::coordinator::kChain) {
    std::fprintf(stderr, "usage: bench_prefix_index BLOCKS, at least 1024\n");
    return 2;
  }
  return tokura::coordinator::Main(blocks);
}
