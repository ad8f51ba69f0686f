#pragma once

// The faults of a simulated cluster, the states of operations that they hit, and how often they
// did.

#include <array>
#include <cstddef>
#include <cstdint>

namespace tokura::sim {

enum class Fault : uint8_t {
  kNodeCrash,
  kNodePause,
  kClientCrash,
  kClientPause,
  kPartitionBoth,
  kPartitionOneWay,
  kReset,
  kZombie,
  kBitFlips,
  kLossyFrames,
  kPoolPause,
  kMemoryFlip,
  kNodeLeave,
  kNodeJoin,
  // Where there are coordinators.
  kCoordinatorCrash,
  kCoordinatorPause,
  kNodeCutOff,    // from coordinators, not from clients
  kClientCutOff,  // from one coordinator
};
inline constexpr size_t kDirectFaults = 14;
inline constexpr size_t kFaults = 18;
const char* FaultName(Fault fault);

// What a client, or the cluster, was in the middle of when a fault hit it.
enum class Stage : uint8_t {
  kIdle,
  kLookup,
  kAcquire,
  kGet,
  kPut,
  kOther,     // remove, stat
  kLease,     // holds one
  kOffer,     // a payload waits to be taken
  kTransfer,  // a payload is under way
  kCodec,     // between two layers of an encode or decode
  kSnapshot,  // a coordinator does not know yet all that some node holds
};
inline constexpr size_t kStages = 11;
const char* StageName(Stage stage);
inline uint32_t StageBit(Stage stage) {
  return 1u << static_cast<uint32_t>(stage);
}

// Times each fault hit each stage.
using Coverage = std::array<std::array<uint64_t, kStages>, kFaults>;

}  // namespace tokura::sim
