#include "tests/sim/faults.h"

#include <optional>

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;

}  // namespace

void FaultInjector::Later(Duration delay, std::function<void()> task) {
  cluster_.scheduler().After(delay, std::move(task));
}

void FaultInjector::Hit(Fault fault, size_t index) {
  ClientProcess& client = cluster_.client(index);
  client.disturbed = cluster_.scheduler().Now();
  uint32_t stages = stages_of_(index);
  const NetworkActivity activity = cluster_.network().activity(*client.host);
  stages |= client.leases.empty() ? 0 : StageBit(Stage::kLease);
  stages |= activity.offers > 0 ? StageBit(Stage::kOffer) : 0;
  stages |= activity.transfers > 0 ? StageBit(Stage::kTransfer) : 0;
  stages |= client.host->pool().busy() ? StageBit(Stage::kCodec) : 0;
  stages |= witness_.SnapshotUnderWay() ? StageBit(Stage::kSnapshot) : 0;
  stages |= stages == 0 ? StageBit(Stage::kIdle) : 0;
  for (size_t stage = 0; stage < kStages; ++stage) {
    coverage_[static_cast<size_t>(fault)][stage] += (stages >> stage) & 1;
  }
}

void FaultInjector::HitAll(Fault fault) {
  for (size_t i = 0; i < cluster_.clients(); ++i) {
    Hit(fault, i);
  }
}

bool FaultInjector::Possible(Fault fault, const Target& target) const {
  if (fault == Fault::kNodeJoin) {
    return cluster_.nodes() < Cluster::kNodesMax;
  }
  const NodeProcess& node = cluster_.node(target.node);
  if (fault == Fault::kZombie && cluster_.coordinated() && !witness_.Admitted(*node.host)) {
    return false;  // To a coordinator it would be the newer one.
  }
  if (fault == Fault::kZombie || fault == Fault::kNodeLeave) {
    return !node.ghost && !node.leaving && !node.host->paused();
  }
  if (fault == Fault::kCoordinatorCrash || fault == Fault::kCoordinatorPause) {
    return !cluster_.coordinator(target.coordinator).ghost;
  }
  return !node.ghost;
}

void FaultInjector::Inject() {
  SimRandom& random = cluster_.random();
  Fault fault{};
  Target target;
  do {
    fault = static_cast<Fault>(random.Below(cluster_.coordinated() ? kFaults : kDirectFaults));
    target.node = random.Below(cluster_.nodes());
    target.client = random.Below(cluster_.clients());
    target.coordinator = random.Below(cluster_.coordinators());
  } while (!Possible(fault, target));
  cluster_.scheduler().Record(FaultName(fault), target.node, target.client);
  ++injected_;
  Strike(fault, target);
}

void FaultInjector::Strike(Fault fault, const Target& target) {
  SimRandom& random = cluster_.random();
  switch (fault) {
    case Fault::kNodeCrash:
    case Fault::kNodePause:
    case Fault::kZombie:
    case Fault::kNodeLeave:
    case Fault::kNodeJoin:
      HitAll(fault);
      InjectNodeFault(fault, target.node);
      break;
    case Fault::kClientCrash:
    case Fault::kClientPause:
      Hit(fault, target.client);
      InjectClientFault(fault, target.client);
      break;
    case Fault::kCoordinatorCrash:
    case Fault::kCoordinatorPause:
    case Fault::kNodeCutOff:
      HitAll(fault);
      InjectCoordinatorFault(fault, target);
      break;
    case Fault::kPoolPause: {
      Hit(fault, target.client);
      SimHost& host = random.Permille(800) ? *cluster_.client(target.client).host
                                           : *cluster_.node(target.node).host;
      PausePool(host, random.Between(milliseconds(1), milliseconds(400)));
      break;
    }
    case Fault::kMemoryFlip:
      HitAll(fault);
      if (const std::optional<BlockKey> key = audit_.FlipOne(target.node)) {
        checker_.OnMemoryFlip(*key);
        ++memory_flips_;
      }
      break;
    default:
      Hit(fault, target.client);
      InjectLinkFault(fault, target);
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

// Often shorter than it takes to be suspected, sometimes longer than it takes to be removed.
Duration FaultInjector::Downtime() {
  SimRandom& random = cluster_.random();
  if (!cluster_.coordinated() || random.Permille(400)) {
    return Duration{0};
  }
  return random.Between(milliseconds(1), milliseconds(random.Permille(700) ? 300 : 1500));
}

void FaultInjector::InjectNodeFault(Fault fault, size_t node) {
  SimRandom& random = cluster_.random();
  if (fault == Fault::kNodeCrash) {
    cluster_.CrashNode(
        node, random.Permille(700) ? SimNetwork::Death::kProcess : SimNetwork::Death::kMachine,
        Downtime());
  } else if (fault == Fault::kNodePause) {
    PauseHost(*cluster_.node(node).host, random.Between(milliseconds(1), milliseconds(1500)),
              [] {});
  } else if (fault == Fault::kNodeLeave) {
    if (cluster_.coordinators() > 1 && random.Permille(500)) {
      SplitViews(node);
    }
    cluster_.LeaveNode(node, Downtime());
  } else if (fault == Fault::kNodeJoin) {
    cluster_.JoinNode();
  } else {
    StartZombie(node);
  }
}

// A coordinator that neither the node nor the holder reaches goes on placing blocks on the node,
// which, waiting for it, takes longer to leave.
void FaultInjector::SplitViews(size_t node) {
  SimRandom& random = cluster_.random();
  const Duration length = random.Between(milliseconds(50), milliseconds(400));
  const std::string& follower =
      cluster_.coordinator(random.Between(1, cluster_.coordinators() - 1)).host->ip();
  Cut(cluster_.coordinator(0).host->ip(), follower, Directions::kBoth, length);
  Cut(cluster_.node(node).host->ip(), follower, Directions::kBoth, length);
}

void FaultInjector::InjectCoordinatorFault(Fault fault, const Target& target) {
  SimRandom& random = cluster_.random();
  const bool spared = target.coordinator == 0 && cluster_.holder_must_remember();
  if (fault == Fault::kCoordinatorCrash && !spared) {
    cluster_.CrashCoordinator(target.coordinator, Downtime());
  } else if (fault == Fault::kCoordinatorPause || fault == Fault::kCoordinatorCrash) {
    PauseHost(*cluster_.coordinator(target.coordinator).host,
              random.Between(milliseconds(1), milliseconds(1500)), [] {});
  } else {
    const bool all = random.Permille(500);
    const Directions directions = random.Permille(500) ? Directions::kOne : Directions::kBoth;
    const Duration length = random.Between(milliseconds(1), milliseconds(1500));
    for (size_t i = 0; i < cluster_.coordinators(); ++i) {
      if (all || i == target.coordinator) {
        Cut(cluster_.node(target.node).host->ip(), cluster_.coordinator(i).host->ip(), directions,
            length);
      }
    }
  }
}

void FaultInjector::StartZombie(size_t node) {
  SimRandom& random = cluster_.random();
  SimHost& old_host = *cluster_.node(node).host;
  old_host.Pause();
  NodeProcess& zombie = cluster_.ReplaceNode(
      node, random.Permille(700) ? Cluster::OldAddress::kListed : Cluster::OldAddress::kForgotten);
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

void FaultInjector::Cut(const std::string& one, const std::string& other, Directions directions,
                        Duration length) {
  SimNetwork& network = cluster_.network();
  network.Cut(one, other);
  if (directions == Directions::kBoth) {
    network.Cut(other, one);
  }
  Later(length, [&network, one, other] {
    network.Mend(one, other);
    network.Mend(other, one);
  });
}

void FaultInjector::InjectLinkFault(Fault fault, const Target& target) {
  SimRandom& random = cluster_.random();
  SimNetwork& network = cluster_.network();
  std::string one = cluster_.node(target.node).host->ip();
  std::string other = cluster_.client(target.client).host->ip();
  const uint64_t end = cluster_.coordinated() ? random.Below(100) : 100;
  if (fault == Fault::kClientCutOff || end < 20) {
    one = cluster_.coordinator(target.coordinator).host->ip();
  } else if (end < 40) {
    other = cluster_.coordinator(target.coordinator).host->ip();
  }
  if (random.Permille(500)) {
    std::swap(one, other);
  }
  const Duration length = random.Between(milliseconds(1), milliseconds(700));
  if (fault == Fault::kReset) {
    network.Reset(one, other);
  } else if (fault == Fault::kPartitionOneWay) {
    Cut(one, other, Directions::kOne, length);
  } else if (fault == Fault::kPartitionBoth || fault == Fault::kClientCutOff) {
    Cut(one, other, Directions::kBoth, length);
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
