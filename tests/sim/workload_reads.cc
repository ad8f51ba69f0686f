#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/sim/workload.h"

namespace tokura::sim {

using std::chrono::milliseconds;

void Workload::StartRead(ClientProcess& client) {
  SimRandom& random = cluster_.random();
  Reader reader;
  reader.chain = static_cast<uint32_t>(random.Below(kChains));
  LookupOptions options;
  if (random.Permille(250)) {
    options.accept.max_error = 0.0;
  }
  reader.accept = options.accept;
  options.touch = random.Permille(500);
  options.deadline = RandomDeadline();
  OperationRef operation = Begin(client, Stage::kLookup, *options.deadline, "lookup");
  operation->id =
      client.core->Lookup(universe_.ns(reader.chain), universe_.chain(reader.chain), options,
                          [this, operation, reader](const absl::StatusOr<Match>& match) {
                            End(operation);
                            OnLookup(*operation, reader, match);
                          });
}

void Workload::OnLookup(const Operation& operation, const Reader& reader,
                        const absl::StatusOr<Match>& match) {
  ClientProcess& client = *operation.client;
  if (client.ghost) {
    return;
  }
  if (!match.ok()) {
    if (match.status().code() != absl::StatusCode::kCancelled &&
        match.status().code() != absl::StatusCode::kResourceExhausted) {
      checker_.Violation(absl::StrCat("a lookup failed: ", match.status().ToString()));
    }
    return;
  }
  if (match->blocks() == 0) {
    return;
  }
  // A coordinator's hint may be old; what it names is then a miss. A node's own answer may not.
  for (size_t i = 0; i < match->holders.size() && !cluster_.coordinated(); ++i) {
    CheckIncarnation(operation, match->holders[i].node, match->holders[i].incarnation);
  }
  const uint64_t choice = cluster_.random().Below(100);
  if (choice < 40) {
    StartAcquire(client, reader, *match);
  } else if (choice < 85) {
    StartGet(client, reader, *match);
  } else if (choice < 90) {
    Carry(reader, *match, kShards);
  }
}

void Workload::StartAcquire(ClientProcess& client, const Reader& reader, const Match& match) {
  OperationRef operation = Begin(client, Stage::kAcquire, kProgressLimit, "acquire");
  operation->id =
      client.core->Acquire(universe_.ns(reader.chain), match, reader.accept,
                           [this, operation, reader](const absl::StatusOr<Match>& held) {
                             End(operation);
                             OnAcquired(*operation, reader, held);
                           });
}

void Workload::OnAcquired(const Operation& operation, Reader reader,
                          const absl::StatusOr<Match>& held) {
  ClientProcess& client = *operation.client;
  if (client.ghost || !held.ok() || held->blocks() == 0) {
    return;
  }
  // Holders without a lease are hints, which nobody has believed yet.
  for (const Match::Holder& holder : held->holders) {
    if (!holder.lease.empty()) {
      CheckIncarnation(operation, holder.node, holder.incarnation);
    }
  }
  reader.lease = std::make_shared<Lease>(Lease{&client, *held, operation.started});
  client.leases.push_back(reader.lease);
  if (cluster_.random().Permille(300)) {
    ++shared_leases_;
    Carry(reader, *held, 1);
  } else {
    StartGet(client, reader, *held);
  }
}

// What one process found travels as bytes; others load it, each `shards` head shards.
void Workload::Carry(const Reader& reader, const Match& match, uint32_t shards) {
  SimRandom& random = cluster_.random();
  const std::string bytes = match.Serialize();
  const size_t first = random.Below(cluster_.clients());
  for (uint32_t shard = 0; shard < kShards; shard += shards) {
    const size_t worker = (first + shard) % cluster_.clients();
    Reader part = reader;
    part.first_shard = shard;
    part.shards = shards;
    const Duration delay = random.Between(Duration{0}, milliseconds(100));
    cluster_.scheduler().After(delay, [this, part, bytes, worker] { Load(worker, part, bytes); });
  }
}

void Workload::Load(size_t worker, const Reader& reader, const std::string& bytes) {
  if (worker >= cluster_.clients() || cluster_.client(worker).host->paused()) {
    return;
  }
  const absl::StatusOr<Match> match = Match::Parse(bytes);
  if (!match.ok()) {
    checker_.Violation(absl::StrCat("a match does not travel: ", match.status().ToString()));
    return;
  }
  ClientProcess& client = cluster_.client(worker);
  client.host->loop().Enter([&] { StartGet(client, reader, *match); });
}

void Workload::StartGet(ClientProcess& client, const Reader& reader, const Match& match) {
  const std::shared_ptr<KvBuffer> buffer = TakeBuffer(client);
  if (buffer == nullptr) {
    return;
  }
  SimRandom& random = cluster_.random();
  buffer->Scramble(random);
  GetOptions options;
  options.accept = reader.accept;
  options.deadline = RandomDeadline();
  auto reading = std::make_shared<Checker::Reading>();
  reading->chain = reader.chain;
  reading->exact_only = reader.accept.max_error.has_value();
  reading->first_shard = reader.first_shard;
  reading->shards = reader.shards;
  if (!IsSliding(reader.chain) && random.Permille(300)) {
    options.first_layer = reading->first_layer = static_cast<uint32_t>(random.Below(kLayers));
    options.layers = reading->layers = 1;
  }
  if (random.Permille(300)) {
    options.first_block = static_cast<uint32_t>(random.Below(match.blocks()));
  }
  reading->first_block = options.first_block;
  reading->prefix_blocks = static_cast<uint32_t>(match.blocks());
  reading->blocks = reading->prefix_blocks - options.first_block;
  reading->before = buffer->Copy();
  OperationRef operation = Begin(client, Stage::kGet, *options.deadline, "get");
  operation->id = client.core->Get(
      universe_.ns(reader.chain), match,
      buffer->View(reader.chain, reader.first_shard, reader.shards), options,
      [this, operation, buffer, reading, lease = reader.lease](const GetResult& result) {
        End(operation);
        OnGot(*operation, buffer, *reading, lease.get(), result);
      });
}

void Workload::OnGot(const Operation& operation, const std::shared_ptr<KvBuffer>& buffer,
                     Checker::Reading& reading, const Lease* maybe_lease, const GetResult& result) {
  ClientProcess& client = *operation.client;
  if (client.ghost) {
    return;
  }
  reading.flips = faults_->FlippedSince(operation.started);
  reading.held = maybe_lease != nullptr && Undisturbed(*maybe_lease) &&
                 client.disturbed < maybe_lease->asked - kCalm;
  carried_ += reading.held && maybe_lease->owner != &client ? 1 : 0;
  checker_.OnGetResult(reading, *buffer, result);
  for (const absl::Status& status : result.blocks) {
    ++get_statuses_.at(static_cast<size_t>(status.code()));
  }
  Freeze(client, buffer);
}

// Whether nothing can have ended it.
bool Workload::Undisturbed(const Lease& lease) const {
  return !lease.released && !lease.owner->ghost && !lease.owner->host->paused() &&
         lease.owner->disturbed < lease.asked - kCalm;
}

void Workload::UseLease(ClientProcess& client) {
  if (client.leases.empty()) {
    return;
  }
  SimRandom& random = cluster_.random();
  const size_t index = random.Below(client.leases.size());
  const std::shared_ptr<Lease> lease = client.leases[index];
  if (random.Permille(400)) {
    client.core->Renew(lease->match);
    return;
  }
  lease->released = true;
  client.core->Release(lease->match);
  client.leases.erase(client.leases.begin() + static_cast<std::ptrdiff_t>(index));
  if (random.Permille(300)) {
    client.core->Release(lease->match);
  }
  if (random.Permille(500)) {
    ReleaseAgain(client, lease, random.Between(Duration{0}, milliseconds(300)));
  }
}

// A caller that lost track: the second release is none.
void Workload::ReleaseAgain(ClientProcess& client, std::shared_ptr<Lease> lease, Duration after) {
  cluster_.scheduler().After(after, [&client, lease = std::move(lease)] {
    if (!client.ghost && !client.ended && !client.host->paused()) {
      client.host->loop().Enter([&] { client.core->Release(lease->match); });
    }
  });
}

}  // namespace tokura::sim
