#include "tests/integration/writers.h"

#include <cstring>

#include "tests/integration/process.h"

namespace tokura::integration {

void FillAsWriter(Writer writer, uint64_t chain, KvMemory& memory) {
  memory.Fill((writer == Writer::kTest ? 5000 : 6000) + chain);
}

void PutAsWriter(Client& client, const NamespaceRef& space, Writer writer, uint64_t chain,
                 KvMemory& memory) {
  FillAsWriter(writer, chain, memory);
  SequenceView view = memory.View();
  view.shards = 2;
  PutOptions options;
  options.deadline = Scaled(std::chrono::seconds(5));
  client.Put(space, MakeChain(*space, chain, kRivalBlocks), view, options);
}

PutResult PutShard(Client& client, const NamespaceRef& space, uint32_t shard, uint64_t seed,
                   KvMemory& memory) {
  memory.Fill(seed);
  PutOptions options;
  options.deadline = Scaled(std::chrono::seconds(5));
  ContentId content;
  std::memcpy(content.bytes.data(), &seed, sizeof(seed));
  content.bytes.back() = 1;
  options.content_id_base = content;
  return client.Put(space, MakeChain(*space, seed, kRivalBlocks), memory.ShardView(shard), options);
}

}  // namespace tokura::integration
