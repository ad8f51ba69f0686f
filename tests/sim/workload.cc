#include "tests/sim/workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;

// How much later than its deadline an operation may end: timers' lateness, posts, clock drift.
constexpr Duration kSlack = milliseconds(20);
// For operations that end by progress instead of a stated deadline.
constexpr Duration kProgressLimit = milliseconds(1500);

Duration RandomDeadline(SimRandom& random) {
  return random.Permille(300) ? random.Between(milliseconds(1), milliseconds(20))
                              : random.Between(milliseconds(20), milliseconds(400));
}

}  // namespace

Workload::OperationRef Workload::Begin(ClientProcess& client, Stage stage, Duration limit,
                                       std::string what) {
  auto operation = std::make_shared<Operation>();
  operation->stage = stage;
  operation->client = &client;
  operation->started = cluster_.scheduler().Now();
  operation->due = operation->started + limit;
  operation->what = std::move(what);
  operations_.push_back(operation);
  ++started_;
  return operation;
}

void Workload::End(const OperationRef& operation) {
  if (operation->done) {
    checker_.Violation(absl::StrCat(operation->what, ": called back twice"));
  }
  operation->done = true;
  cluster_.scheduler().Record(operation->what);
}

ClientProcess* Workload::PickClient() {
  ClientProcess& client = cluster_.client(cluster_.random().Below(cluster_.clients()));
  return client.host->paused() ? nullptr : &client;
}

std::shared_ptr<KvBuffer> Workload::TakeBuffer(ClientProcess& client) {
  if (client.free_buffers.empty()) {
    return nullptr;
  }
  std::shared_ptr<KvBuffer> buffer = std::move(client.free_buffers.back());
  client.free_buffers.pop_back();
  return buffer;
}

void Workload::Freeze(ClientProcess& client, std::shared_ptr<KvBuffer> buffer) {
  const uint32_t crc = buffer->Crc();
  const Duration time = cluster_.random().Between(milliseconds(5), milliseconds(700));
  frozen_.push_back({&client, std::move(buffer), crc, cluster_.scheduler().Now() + time});
}

void Workload::Check() {
  const TimePoint now = cluster_.scheduler().Now();
  for (auto it = operations_.begin(); it != operations_.end();) {
    const Operation& operation = **it;
    const ClientProcess& client = *operation.client;
    const bool over = operation.done && !operation.reading;
    if (over || client.ghost) {
      halves_ += operation.sharded && !operation.done ? 1 : 0;
      it = operations_.erase(it);
      continue;
    }
    const TimePoint due = std::max(operation.due, client.continued) + kSlack;
    if (!client.host->paused() && now > due) {
      checker_.Violation(
          absl::StrCat("HUNG: ", operation.what, " of ", client.host->name(),
                       operation.done ? " has not released its view" : " has not ended"));
      it = operations_.erase(it);
      continue;
    }
    ++it;
  }
  for (auto it = frozen_.begin(); it != frozen_.end();) {
    if (it->buffer->Crc() != it->crc) {
      checker_.Violation(absl::StrCat("WRITTEN AFTER THE CALLBACK: a view of ",
                                      it->client->host->name(), " changed"));
      it->crc = it->buffer->Crc();
    }
    if (now >= it->until && !it->client->host->paused()) {
      it->client->free_buffers.push_back(std::move(it->buffer));
      it = frozen_.erase(it);
    } else {
      ++it;
    }
  }
}

uint32_t Workload::StagesOf(size_t index) const {
  uint32_t stages = 0;
  for (const OperationRef& operation : operations_) {
    if (operation->client == &cluster_.client(index) && !operation->done) {
      stages |= 1u << static_cast<uint32_t>(operation->stage);
    }
  }
  return stages;
}

bool Workload::idle() const {
  return std::all_of(operations_.begin(), operations_.end(), [](const OperationRef& operation) {
    return operation->client->ghost || (operation->done && !operation->reading);
  });
}

void Workload::StartRandom() {
  ClientProcess* const client = PickClient();
  if (client == nullptr) {
    return;
  }
  client->host->loop().Enter([&] {
    const uint64_t choice = cluster_.random().Below(100);
    if (choice < 30) {
      StartPut(*client);
    } else if (choice < 74) {
      StartRead(*client);
    } else if (choice < 80) {
      UseLease(*client);
    } else if (choice < 86) {
      StartRemove(*client);
    } else if (choice < 89) {
      StartStat(*client);
    } else if (choice < 95) {
      CancelSome(*client);
    }
  });
  if (cluster_.random().Permille(50)) {
    StartShardedPut();
  }
}

PutOptions Workload::RandomPut() {
  SimRandom& random = cluster_.random();
  static constexpr const char* kCodecs[] = {"raw", "int8", "kivi4"};
  PutOptions options;
  options.codec = kCodecs[random.Below(3)];
  options.first_block = static_cast<uint32_t>(random.Below(kChainBlocks));
  options.blocks = static_cast<uint32_t>(random.Between(1, kChainBlocks - options.first_block));
  if (random.Permille(500)) {
    options.first_block = 0;
  }
  options.deadline = RandomDeadline(random);
  return options;
}

ContentId Workload::RandomContent() {
  ContentId content;
  cluster_.random().Fill(std::as_writable_bytes(std::span(content.bytes)));
  return content;
}

void Workload::StartPut(ClientProcess& client) {
  PutOptions options = RandomPut();
  if (cluster_.random().Permille(700)) {
    options.content_id_base = RandomContent();
    audit_.OnPut(*options.content_id_base, client);
  }
  Put(client, static_cast<uint32_t>(cluster_.random().Below(kChains)), ++last_variant_,
      std::move(options), 0, kShards);
}

// Two writers, each with one head shard of the same blocks.
void Workload::StartShardedPut() {
  SimRandom& random = cluster_.random();
  const auto chain = static_cast<uint32_t>(random.Below(kChains));
  const Variant variant = ++last_variant_;
  PutOptions options = RandomPut();
  options.content_id_base = RandomContent();
  const size_t first = random.Below(cluster_.clients());
  ++sharded_;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    ClientProcess& client = cluster_.client((first + shard) % cluster_.clients());
    if (!client.host->paused()) {
      client.host->loop().Enter([&] { Put(client, chain, variant, options, shard, 1); });
    } else {
      ++halves_;
    }
  }
}

size_t Workload::PutsOf(uint32_t chain) const {
  return static_cast<size_t>(
      std::count_if(operations_.begin(), operations_.end(), [&](const OperationRef& operation) {
        return !operation->done && operation->chain == chain;
      }));
}

void Workload::Put(ClientProcess& client, uint32_t chain, Variant variant, PutOptions options,
                   uint32_t first_shard, uint32_t shards) {
  const std::shared_ptr<KvBuffer> buffer = TakeBuffer(client);
  if (buffer == nullptr) {
    return;
  }
  buffer->Scramble(cluster_.random());
  for (uint32_t block = options.first_block; block < options.first_block + options.blocks;
       ++block) {
    buffer->Store(block, KvUniverse::Original(variant, chain, block));
  }
  checker_.OnPut(chain, options.first_block, options.blocks, variant, *options.codec);
  const uint32_t first_block = options.first_block;
  contested_ += PutsOf(chain) > 0 ? 1 : 0;
  OperationRef operation = Begin(client, Stage::kPut, *options.deadline, "put");
  operation->reading = true;
  operation->sharded = shards < kShards;
  operation->chain = chain;
  operation->id = client.core->Put(
      universe_.ns(), universe_.chain(chain), buffer->View(first_shard, shards), options,
      [this, operation, buffer] {
        // The engine writes its next tokens at once: whoever still reads stores garbage.
        operation->reading = false;
        buffer->Scramble(cluster_.random());
      },
      [this, operation, buffer, chain, first_block, variant](const PutResult& result) {
        if (operation->reading) {
          checker_.Violation("a put was answered before it released its view");
        }
        End(operation);
        operation->client->free_buffers.push_back(buffer);
        OnStored(chain, first_block, variant, result);
      });
}

void Workload::OnStored(uint32_t chain, uint32_t first_block, Variant variant,
                        const PutResult& result) {
  for (const absl::Status& status : result.blocks) {
    ++put_statuses_.at(static_cast<size_t>(status.code()));
  }
  checker_.OnPutResult(chain, first_block, variant, result);
}

void Workload::StartRead(ClientProcess& client) {
  SimRandom& random = cluster_.random();
  const auto chain = static_cast<uint32_t>(random.Below(kChains));
  LookupOptions options;
  if (random.Permille(250)) {
    options.accept.max_error = 0.0;
  }
  options.touch = random.Permille(500);
  options.deadline = RandomDeadline(random);
  OperationRef operation = Begin(client, Stage::kLookup, *options.deadline, "lookup");
  operation->id = client.core->Lookup(
      universe_.ns(), universe_.chain(chain), options,
      [this, operation, chain, accept = options.accept](absl::StatusOr<Match> match) {
        End(operation);
        OnLookup(*operation, chain, accept, std::move(match));
      });
}

void Workload::OnLookup(const Operation& operation, uint32_t chain, AcceptOptions accept,
                        absl::StatusOr<Match> match) {
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
  for (const Match::Holder& holder : match->holders) {
    CheckIncarnation(operation, holder.node, holder.incarnation);
  }
  if (cluster_.random().Permille(300)) {
    StartAcquire(client, chain, accept, *match);
  } else {
    StartGet(client, chain, accept, *match);
  }
}

void Workload::StartAcquire(ClientProcess& client, uint32_t chain, AcceptOptions accept,
                            const Match& match) {
  OperationRef operation = Begin(client, Stage::kAcquire, kProgressLimit, "acquire");
  operation->id =
      client.core->Acquire(universe_.ns(), match, accept,
                           [this, operation, chain, accept](const absl::StatusOr<Match>& held) {
                             End(operation);
                             ClientProcess& client = *operation->client;
                             if (client.ghost || !held.ok() || held->blocks() == 0) {
                               return;
                             }
                             for (const Match::Holder& holder : held->holders) {
                               CheckIncarnation(*operation, holder.node, holder.incarnation);
                             }
                             client.held.push_back(*held);
                             StartGet(client, chain, accept, *held);
                           });
}

void Workload::OnGot(const OperationRef& operation, const std::shared_ptr<KvBuffer>& buffer,
                     Checker::Reading* reading, const GetResult& result) {
  End(operation);
  ClientProcess& client = *operation->client;
  if (client.ghost) {
    return;
  }
  reading->flips = faults_->FlippedSince(operation->started);
  reading->held = reading->held && client.disturbed < operation->started - std::chrono::seconds(2);
  checker_.OnGetResult(*reading, *buffer, result);
  for (const absl::Status& status : result.blocks) {
    ++get_statuses_.at(static_cast<size_t>(status.code()));
  }
  Freeze(client, buffer);
}

void Workload::StartGet(ClientProcess& client, uint32_t chain, AcceptOptions accept,
                        const Match& match) {
  const std::shared_ptr<KvBuffer> buffer = TakeBuffer(client);
  if (buffer == nullptr) {
    return;
  }
  SimRandom& random = cluster_.random();
  buffer->Scramble(random);
  GetOptions options;
  options.accept = accept;
  options.deadline = RandomDeadline(random);
  auto reading = std::make_shared<Checker::Reading>();
  reading->chain = chain;
  reading->exact_only = accept.max_error.has_value();
  if (random.Permille(300)) {
    options.first_layer = reading->first_layer = static_cast<uint32_t>(random.Below(kLayers));
    options.layers = reading->layers = 1;
  }
  if (random.Permille(300)) {
    options.first_block = static_cast<uint32_t>(random.Below(match.blocks()));
  }
  reading->first_block = options.first_block;
  reading->blocks = static_cast<uint32_t>(match.blocks()) - options.first_block;
  reading->before = buffer->Copy();
  OperationRef operation = Begin(client, Stage::kGet, *options.deadline, "get");
  reading->held = match.held();
  operation->id = client.core->Get(universe_.ns(), match, buffer->View(0, kShards), options,
                                   [this, operation, buffer, reading](const GetResult& result) {
                                     OnGot(operation, buffer, reading.get(), result);
                                   });
}

void Workload::StartRemove(ClientProcess& client) {
  SimRandom& random = cluster_.random();
  const auto keys = universe_.chain(static_cast<uint32_t>(random.Below(kChains))).keys();
  const size_t first = random.Below(keys.size());
  std::vector<BlockKey> some(keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end());
  OperationRef operation = Begin(client, Stage::kOther, kProgressLimit, "remove");
  operation->id = client.core->Remove(universe_.ns(), std::move(some),
                                      [this, operation](const RemoveResult&) { End(operation); });
}

void Workload::StartStat(ClientProcess& client) {
  OperationRef operation = Begin(client, Stage::kOther, kProgressLimit, "stat");
  operation->id =
      client.core->Stat([this, operation](const std::vector<absl::StatusOr<NodeStat>>& stats) {
        End(operation);
        for (const auto& stat : stats) {
          if (stat.ok() && !operation->client->ghost) {
            CheckIncarnation(*operation, stat->node, stat->incarnation);
          }
        }
      });
}

void Workload::UseLease(ClientProcess& client) {
  if (client.held.empty()) {
    return;
  }
  SimRandom& random = cluster_.random();
  const size_t index = random.Below(client.held.size());
  if (random.Permille(400)) {
    client.core->Renew(client.held[index]);
    return;
  }
  client.core->Release(client.held[index]);
  client.held.erase(client.held.begin() + static_cast<std::ptrdiff_t>(index));
}

void Workload::CancelSome(ClientProcess& client) {
  std::vector<ClientCore::OperationId> ids;
  for (const OperationRef& operation : operations_) {
    if (operation->client == &client && !operation->done) {
      ids.push_back(operation->id);
    }
  }
  if (!ids.empty()) {
    client.core->Cancel(ids[cluster_.random().Below(ids.size())]);
  }
}

// A node that was replaced is never heard again: an operation that started after the client had
// heard of the replacement gets nothing from the one before. (Earlier ones may have had their
// answer already and waited for other nodes.)
void Workload::CheckIncarnation(const Operation& operation, const std::string& node,
                                uint64_t incarnation) {
  ClientProcess::Seen& seen = operation.client->incarnations[node];
  if (incarnation > seen.highest) {
    seen = {incarnation, cluster_.scheduler().Now()};
  } else if (incarnation < seen.highest && operation.started > seen.since) {
    checker_.Violation(absl::StrCat("ZOMBIE: incarnation ", incarnation, " of ", node,
                                    " was believed by a ", operation.what, " after ",
                                    seen.highest));
  }
}

}  // namespace tokura::sim
