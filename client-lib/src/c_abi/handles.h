#pragma once

// What the C ABI's opaque types are.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <prometheus/registry.h>

#include "client-lib/src/c_abi/operation_state.h"
#include "client-lib/src/c_abi/route.h"
#include "proto/block_key.h"
#include "tokura.h"
#include "tokura/client.h"

struct tokura_bytes {
  std::string data;
};

struct tokura_namespace {
  tokura::NamespaceRef ns;
};

// Thread-compatible.
struct tokura_chain {
  enum class Origin : uint8_t { kNone, kTokens, kHashes, kKeys };
  tokura::NamespaceRef ns;
  Origin origin = Origin::kNone;
  std::optional<tokura::TokenChain> tokens;  // of kTokens
  std::vector<tokura::BlockKey> keys;        // of kHashes and kKeys

  // FAILED_PRECONDITION: it is made of something else.
  absl::Status Become(Origin wanted);
  std::span<const tokura::BlockKey> Keys() const;
  // The chain as operations take it.
  tokura::TokenChain Snapshot() const;
};

// Immutable.
struct tokura_match {
  explicit tokura_match(tokura::Match match);
  tokura::Match match;
  std::vector<const char*> codecs;
  std::vector<tokura_match_run> runs;
};

struct tokura_client {
  tokura::c_abi::ForkStamp stamp;
  std::shared_ptr<prometheus::Registry> registry;  // owners: this and the client
  std::unique_ptr<tokura::Client> client;
  std::shared_ptr<tokura::c_abi::Route> route;  // owners: this and the client's operations
};

struct tokura_operation {
  std::shared_ptr<tokura::c_abi::Route> route;
  // Owners: this and the operation's callbacks.
  std::shared_ptr<tokura::c_abi::OperationState> state;
};
