#include <algorithm>
#include <utility>

#include "tests/sim/workload.h"

namespace tokura::sim {

using std::chrono::milliseconds;

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
  options.deadline = RandomDeadline();
  return options;
}

ContentId Workload::RandomContent() {
  ContentId content;
  cluster_.random().Fill(std::as_writable_bytes(std::span(content.bytes)));
  return content;
}

void Workload::StartPut(ClientProcess& client) {
  SimRandom& random = cluster_.random();
  PutOptions options = RandomPut();
  if (random.Permille(700)) {
    options.content_id_base = RandomContent();
    audit_.OnPut(*options.content_id_base, client);
  }
  Writing writing;
  writing.chain = static_cast<uint32_t>(random.Below(kChains));
  writing.variant = ++last_variant_;
  writing.group_mask = RandomGroups(writing.chain);
  Put(client, writing, std::move(options));
}

// Two writers, each with one head shard of the same blocks.
void Workload::StartShardedPut() {
  SimRandom& random = cluster_.random();
  Writing writing;
  writing.chain = static_cast<uint32_t>(random.Below(kChains));
  writing.variant = ++last_variant_;
  writing.group_mask = RandomGroups(writing.chain);
  writing.shards = 1;
  PutOptions options = RandomPut();
  options.content_id_base = RandomContent();
  const size_t first = random.Below(cluster_.clients());
  ++sharded_;
  for (uint32_t shard = 0; shard < kShards; ++shard) {
    ClientProcess& client = cluster_.client((first + shard) % cluster_.clients());
    writing.first_shard = shard;
    if (!client.host->paused()) {
      client.host->loop().Enter([&] { Put(client, writing, options); });
    } else {
      ++halves_;
    }
  }
}

// An engine has often freed the sliding group of older blocks.
uint32_t Workload::RandomGroups(uint32_t chain) {
  return !IsSliding(chain) || cluster_.random().Permille(300) ? 1 : 3;
}

size_t Workload::PutsOf(uint32_t chain) const {
  return static_cast<size_t>(
      std::count_if(operations_.begin(), operations_.end(), [&](const OperationRef& operation) {
        return !operation->done && operation->chain == chain;
      }));
}

void Workload::Put(ClientProcess& client, const Writing& writing, PutOptions options) {
  const std::shared_ptr<KvBuffer> buffer = TakeBuffer(client);
  if (buffer == nullptr) {
    return;
  }
  const uint32_t chain = writing.chain;
  const uint32_t first_block = options.first_block;
  buffer->Scramble(cluster_.random());
  for (uint32_t block = first_block; block < first_block + options.blocks; ++block) {
    buffer->Store(block, KvUniverse::Original(writing.variant, chain, block));
  }
  checker_.OnPut(first_block, options.blocks,
                 {writing.variant, chain, *options.codec, writing.group_mask});
  contested_ += PutsOf(chain) > 0 ? 1 : 0;
  OperationRef operation = Begin(client, Stage::kPut, *options.deadline, "put");
  operation->reading = true;
  operation->sharded = writing.shards < kShards;
  operation->chain = chain;
  operation->id = client.core->Put(
      universe_.ns(chain), universe_.chain(chain),
      buffer->View(chain, writing.first_shard, writing.shards, writing.group_mask), options,
      [this, operation, buffer] {
        // The engine writes its next tokens at once: whoever still reads stores garbage.
        operation->reading = false;
        buffer->Scramble(cluster_.random());
      },
      [this, operation, buffer, chain, first_block,
       variant = writing.variant](const PutResult& result) {
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

}  // namespace tokura::sim
