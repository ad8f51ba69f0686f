// Two clients share the KV of one prompt through a cache node:
//   example-share-prefix 127.0.0.1:4321
// The first stores the KV of its prompt; the second, which knows only the tokens, finds the longest
// prefix of its own prompt at the node and reads it into its own memory. In production the two are
// workers on different machines.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tokura/client.h"

namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kHeads = 2;
constexpr uint32_t kHeadDim = 64;
constexpr uint32_t kTokens = 256;

// One worker's KV memory: per layer K and V as [heads, tokens, head_dim] in float32.
struct WorkerMemory {
  std::vector<float> values = std::vector<float>(2 * kLayers * kHeads * kTokens * kHeadDim);

  tokura::SequenceView View() {
    const size_t side = size_t{kHeads} * kTokens * kHeadDim;
    std::vector<tokura::kernels::KvLayer> layers;
    for (size_t i = 0; i < kLayers; ++i) {
      float* k = values.data() + 2 * i * side;
      layers.push_back({reinterpret_cast<std::byte*>(k), reinterpret_cast<std::byte*>(k + side)});
    }
    tokura::SequenceView view;
    view.groups.push_back(tokura::kernels::ContiguousView(tokura::DType::kFloat32, kHeads, kHeadDim,
                                                          kTokens, layers));
    return view;
  }
};

tokura::NamespaceSpec ModelSpec() {
  tokura::NamespaceSpec spec;
  spec.model = "example";
  spec.dtype = tokura::DType::kFloat32;
  spec.groups.resize(1);
  spec.groups[0].layers.resize(kLayers);
  std::iota(spec.groups[0].layers.begin(), spec.groups[0].layers.end(), 0);
  spec.groups[0].kv_heads = kHeads;
  spec.groups[0].k_head_dim = spec.groups[0].v_head_dim = kHeadDim;
  return spec;
}

std::unique_ptr<tokura::Client> Connect(const std::string& node, const std::string& name) {
  tokura::ClientOptions options;
  options.nodes = {node};
  options.name = name;
  options.ingest_codec = "raw";  // exact; the default, kivi4, takes a quarter of the bytes
  auto client = tokura::Client::Create(options);
  const absl::Status ready =
      client.ok() ? (*client)->WaitReady(std::chrono::seconds(5)) : client.status();
  if (!ready.ok()) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), std::string(ready.message()).c_str());
    return nullptr;
  }
  return std::move(*client);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: example-share-prefix HOST:PORT\n");
    return 2;
  }
  auto prefill = Connect(argv[1], "prefill");
  auto decode = Connect(argv[1], "decode");
  if (!prefill || !decode) {
    return 1;
  }
  auto ns = *prefill->OpenNamespace(ModelSpec());
  std::vector<uint32_t> prompt(kTokens);
  std::iota(prompt.begin(), prompt.end(), 1000);
  tokura::TokenChain chain(ns->fingerprint(), ns->spec().block_tokens);
  chain.Append(prompt);

  WorkerMemory source, target;
  std::iota(source.values.begin(), source.values.end(), 0.0f);
  const tokura::PutResult put = prefill->Put(ns, chain, source.View());
  const auto match = decode->Lookup(ns, chain);
  const tokura::GetResult got = decode->Get(ns, *match, target.View());
  const bool same = got.prefix_ok() == chain.blocks() && source.values == target.values;
  std::printf("stored %zu of %zu blocks, found %zu, read %zu: %s\n", put.stored(), chain.blocks(),
              match->blocks(), got.prefix_ok(), same ? "same values" : "NOT the same");
  return same ? 0 : 1;
}
