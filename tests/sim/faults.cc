#include "tests/sim/faults.h"

#include <utility>

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;

uint32_t Bit(Stage stage) {
  return 1u << static_cast<uint32_t>(stage);
}

}  // namespace

const char* FaultName(Fault fault) {
  static constexpr const char* kNames[kFaults] = {
      "node_crash",     "node_pause",        "client_crash", "client_pause",
      "partition_both", "partition_one_way", "reset",        "zombie",
      "bit_flips",      "lossy_frames",      "pool_pause",   "memory_flip"};
  return kNames[static_cast<size_t>(fault)];
}

const char* StageName(Stage stage) {
  static constexpr const char* kNames[kStages] = {
      "idle", "lookup", "acquire", "get", "put", "other", "lease", "offer", "transfer", "codec"};
  return kNames[static_cast<size_t>(stage)];
}

void FaultInjector::Later(Duration delay, std::function<void()> task) {
  cluster_.scheduler().After(delay, std::move(task));
}

void FaultInjector::Hit(Fault fault, size_t index) {
  ClientProcess& client = cluster_.client(index);
  client.disturbed = cluster_.scheduler().Now();
  uint32_t stages = stages_of_(index);
  const NetworkActivity activity = cluster_.network().activity(*client.host);
  stages |= client.held.empty() ? 0 : Bit(Stage::kLease);
  stages |= activity.offers > 0 ? Bit(Stage::kOffer) : 0;
  stages |= activity.transfers > 0 ? Bit(Stage::kTransfer) : 0;
  stages |= client.host->pool().busy() ? Bit(Stage::kCodec) : 0;
  stages |= stages == 0 ? Bit(Stage::kIdle) : 0;
  for (size_t stage = 0; stage < kStages; ++stage) {
    coverage_[static_cast<size_t>(fault)][stage] += (stages >> stage) & 1;
  }
}

void FaultInjector::HitAll(Fault fault) {
  for (size_t i = 0; i < cluster_.clients(); ++i) {
    Hit(fault, i);
  }
}

void FaultInjector::Inject() {
  SimRandom& random = cluster_.random();
  const auto fault = static_cast<Fault>(random.Below(kFaults));
  const size_t node = random.Below(cluster_.nodes());
  const size_t client = random.Below(cluster_.clients());
  cluster_.scheduler().Record(FaultName(fault), node, client);
  ++injected_;
  switch (fault) {
    case Fault::kNodeCrash:
    case Fault::kNodePause:
    case Fault::kZombie:
      HitAll(fault);
      InjectNodeFault(fault, node);
      break;
    case Fault::kClientCrash:
    case Fault::kClientPause:
      Hit(fault, client);
      InjectClientFault(fault, client);
      break;
    case Fault::kPoolPause: {
      Hit(fault, client);
      SimHost& host =
          random.Permille(800) ? *cluster_.client(client).host : *cluster_.node(node).host;
      PausePool(host, random.Between(milliseconds(1), milliseconds(400)));
      break;
    }
    case Fault::kMemoryFlip:
      HitAll(fault);
      if (const std::optional<BlockKey> key = audit_.FlipOne(node)) {
        checker_.OnMemoryFlip(*key);
        ++memory_flips_;
      }
      break;
    default:
      Hit(fault, client);
      InjectLinkFault(fault, node, client);
  }
}

void FaultInjector::PauseHost(SimHost& host, Duration length, std::function<void()> then) {
  if (host.paused()) {
    return;
  }
  host.Pause();
  Later(length, [&host, then = std::move(then)] {
    if (host.paused()) {
      host.Continue();
      then();
    }
  });
}

void FaultInjector::InjectNodeFault(Fault fault, size_t node) {
  SimRandom& random = cluster_.random();
  if (fault == Fault::kNodeCrash) {
    cluster_.CrashNode(
        node, random.Permille(700) ? SimNetwork::Death::kProcess : SimNetwork::Death::kMachine);
  } else if (fault == Fault::kNodePause) {
    PauseHost(*cluster_.node(node).host, random.Between(milliseconds(1), milliseconds(1500)),
              [] {});
  } else {
    StartZombie(node);
  }
}

void FaultInjector::StartZombie(size_t node) {
  SimRandom& random = cluster_.random();
  SimHost& old_host = *cluster_.node(node).host;
  if (!old_host.paused()) {
    old_host.Pause();
  }
  NodeProcess& zombie = cluster_.ReplaceNode(node, random.Permille(700));
  const Duration asleep = random.Between(milliseconds(1), milliseconds(600));
  Later(asleep, [&old_host] {
    if (old_host.paused()) {
      old_host.Continue();
    }
  });
  Later(asleep + random.Between(milliseconds(50), milliseconds(1500)), [this, &zombie] {
    if (!zombie.ghost) {
      cluster_.Kill(zombie, SimNetwork::Death::kProcess);
    }
  });
}

void FaultInjector::PausePool(SimHost& host, Duration length) {
  host.pool().Pause();
  Later(length, [&host] { host.pool().Continue(); });
}

// Sometimes while nodes are slow to verify: what the dead client sent is then still to be stored.
void FaultInjector::CrashClient(size_t index) {
  SimRandom& random = cluster_.random();
  if (random.Permille(500)) {
    cluster_.CrashClient(index);
    return;
  }
  for (size_t i = 0; i < cluster_.nodes(); ++i) {
    PausePool(*cluster_.node(i).host, random.Between(milliseconds(5), milliseconds(60)));
  }
  Later(random.Between(Duration{0}, milliseconds(5)), [this, index] {
    if (index < cluster_.clients()) {
      cluster_.CrashClient(index);
    }
  });
  // Looks while the node still verifies, and again after it has.
  for (int i = 1; i <= 10; ++i) {
    Later(i * milliseconds(7), [this] { audit_.Check(); });
  }
}

void FaultInjector::InjectClientFault(Fault fault, size_t index) {
  if (fault == Fault::kClientCrash) {
    CrashClient(index);
    return;
  }
  ClientProcess& client = cluster_.client(index);
  SimScheduler& scheduler = cluster_.scheduler();
  PauseHost(*client.host, cluster_.random().Between(milliseconds(1), milliseconds(1500)),
            [&client, &scheduler] { client.continued = scheduler.Now(); });
}

void FaultInjector::InjectLinkFault(Fault fault, size_t node, size_t client) {
  SimRandom& random = cluster_.random();
  SimNetwork& network = cluster_.network();
  std::string one = cluster_.node(node).host->ip();
  std::string other = cluster_.client(client).host->ip();
  if (random.Permille(500)) {
    std::swap(one, other);
  }
  const Duration length = random.Between(milliseconds(1), milliseconds(700));
  if (fault == Fault::kReset) {
    network.Reset(one, other);
  } else if (fault == Fault::kPartitionOneWay) {
    network.Cut(one, other);
    Later(length, [&network, one, other] { network.Mend(one, other); });
  } else if (fault == Fault::kPartitionBoth) {
    network.Cut(one, other);
    network.Cut(other, one);
    Later(length, [&network, one, other] {
      network.Mend(one, other);
      network.Mend(other, one);
    });
  } else {
    LinkConditions& link = network.link(one, other);
    if (fault == Fault::kBitFlips) {
      // A broken frame ends its connection: spare the frames to see payloads broken.
      link.flip_permille = random.Permille(400) ? random.Between(20, 400) : 0;
      link.flip_payload_permille = random.Between(100, 600);
      flips_until_ = std::max(flips_until_, cluster_.scheduler().Now() + length);
    } else {
      link.drop_permille = random.Between(10, 300);
      link.reorder_permille = random.Between(0, 300);
    }
    Later(length, [&network, one, other] {
      LinkConditions& mended = network.link(one, other);
      mended.drop_permille = mended.reorder_permille = 0;
      mended.flip_permille = mended.flip_payload_permille = 0;
    });
  }
}

}  // namespace tokura::sim
