#include "tests/sim/workload.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace tokura::sim {
namespace {

using std::chrono::milliseconds;

// How much later than its deadline an operation may end: timers' lateness, posts, clock drift.
constexpr Duration kSlack = milliseconds(20);
}  // namespace

Duration Workload::RandomDeadline() {
  SimRandom& random = cluster_.random();
  return random.Permille(300) ? random.Between(milliseconds(1), milliseconds(20))
                              : random.Between(milliseconds(20), milliseconds(400));
}

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

void Workload::StartRemove(ClientProcess& client) {
  SimRandom& random = cluster_.random();
  const auto chain = static_cast<uint32_t>(random.Below(kChains));
  const std::span<const BlockKey> keys = universe_.chain(chain).keys();
  const size_t first = random.Below(keys.size());
  // The end of a chain, or a hole in it.
  const std::span<const BlockKey> some =
      keys.subspan(first, random.Permille(700) ? keys.size() - first : 1);
  OperationRef operation = Begin(client, Stage::kOther, kProgressLimit, "remove");
  operation->id = client.core->Remove(universe_.ns(chain), {some.begin(), some.end()},
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
