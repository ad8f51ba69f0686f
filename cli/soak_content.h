#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cli/block_pages.h"
#include "tokura/types.h"

namespace tokura::cli {

// Chains of blocks whose every byte follows from the chain's number, so that whoever gets a block
// back can tell whether it is right: the bytes themselves for an exact codec, and what this
// process decodes from its own encoding for a lossy one. Immutable after construction, thread-safe.
class SoakContent {
 public:
  struct Options {
    std::string tenant = "default";
    uint64_t block_bytes = uint64_t{256} << 10;  // raw; rounded up to whole layers
    uint32_t chains = 64;
    uint32_t blocks_per_chain = 8;
    uint32_t sink_tokens = 4;  // as the client's
  };
  explicit SoakContent(const Options& options);

  const NamespaceRef& ns() const { return ns_; }
  const PagesShape& shape() const { return shape_; }
  uint32_t chains() const { return static_cast<uint32_t>(chains_.size()); }
  uint32_t blocks_per_chain() const { return options_.blocks_per_chain; }
  const TokenChain& chain(uint32_t chain) const { return chains_[chain]; }
  // What a chain's blocks are stored in: an exact codec for the even chains, a lossy one for the
  // odd.
  const char* codec(uint32_t chain) const { return chain % 2 == 0 ? "raw" : "kivi4"; }
  bool exact(uint32_t chain) const { return chain % 2 == 0; }

  // Pages for one chain.
  BlockPages MakePages() const { return BlockPages(shape_, options_.blocks_per_chain); }
  SequenceView View(const BlockPages& pages) const;
  // Write the chain's KV.
  void Fill(uint32_t chain, const BlockPages& pages) const;
  // Write what a get of one block must give. Not OK when the codec itself fails.
  absl::Status Expect(uint32_t chain, uint32_t block, const BlockPages& pages) const;

 private:
  void FillBlock(uint32_t chain, uint32_t block, const BlockPages& pages) const;

  const Options options_;
  const PagesShape shape_;
  const NamespaceRef ns_;
  std::vector<TokenChain> chains_;
};

// The shape of blocks of about `block_bytes`: at most 32 layers, then more heads.
PagesShape SoakShape(uint64_t block_bytes);

}  // namespace tokura::cli
