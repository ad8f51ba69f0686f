#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "errors.h"
#include "tokura.h"

namespace tokura::python {

// Frees a handle of the C ABI.
struct Free {
  void operator()(tokura_bytes* handle) const { tokura_bytes_free(handle); }
  void operator()(tokura_namespace* handle) const { tokura_namespace_free(handle); }
  void operator()(tokura_chain* handle) const { tokura_chain_free(handle); }
  void operator()(tokura_match* handle) const { tokura_match_free(handle); }
};
template <typename T>
using Handle = std::unique_ptr<T, Free>;

nanobind::bytes ToBytes(const Handle<tokura_bytes>& bytes);
// [count][size] bytes as a list of bytes objects.
nanobind::list ToList(const uint8_t* data, size_t size, size_t count);

// A valid namespace. Immutable.
class Namespace {
 public:
  // (kind, window, layers, kv_heads, k_head_dim, v_head_dim)
  using Group = std::tuple<uint32_t, uint32_t, std::vector<uint32_t>, uint32_t, uint32_t, uint32_t>;
  // (tenant, model, model_revision, lora_digest, salt)
  using Texts = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  // (dtype, rope, head_shards, block_tokens)
  using Numbers = std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>;
  Namespace(const Texts& texts, const Numbers& numbers, const std::vector<Group>& groups);

  const tokura_namespace* get() const { return handle_.get(); }
  nanobind::bytes fingerprint() const;
  uint64_t block_bytes() const { return tokura_namespace_block_bytes(handle_.get()); }

 private:
  Handle<tokura_namespace> handle_;
};

// The keys of a sequence. The interpreter lock serialises its use.
class Chain {
 public:
  explicit Chain(const Namespace& ns) {
    Error error;
    handle_.reset(error.Check(tokura_chain_create(ns.get(), error)));
  }
  explicit Chain(tokura_chain* handle) : handle_(handle) {}

  const tokura_chain* get() const { return handle_.get(); }
  // `extras`: (kind, hash)
  void AppendTokens(nanobind::handle tokens,
                    const std::vector<std::pair<uint32_t, nanobind::bytes>>& extras);
  void AppendEngineHash(const nanobind::bytes& hash);
  void AppendKeys(const nanobind::bytes& keys);
  Chain Copy() const;
  size_t blocks() const { return tokura_chain_blocks(handle_.get()); }
  uint64_t tokens() const { return tokura_chain_tokens(handle_.get()); }
  // Keys of the first `count` blocks, joined.
  nanobind::bytes Keys(size_t count) const;

 private:
  Handle<tokura_chain> handle_;
};

// What a lookup or acquire found. Immutable.
class Match {
 public:
  Match(tokura_match* handle, double seconds);
  static Match FromBytes(const nanobind::bytes& data);

  const tokura_match* get() const { return handle_.get(); }
  const tokura_match_info& info() const { return info_; }
  double seconds() const { return seconds_; }
  nanobind::bytes Serialize() const;
  nanobind::list Runs() const;
  nanobind::list Codecs() const;
  nanobind::list StoredBytes() const;

 private:
  Handle<tokura_match> handle_;
  tokura_match_info info_{};
  double seconds_;
};

void BindNames(nanobind::module_& module);

}  // namespace tokura::python
