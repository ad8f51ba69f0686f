#pragma once

// Between control messages and the store's types: everything read here comes from clients and is
// checked.

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cache-node/block_store.h"
#include "common/ids.h"
#include "proto/tokura.pb.h"

namespace tokura::node {

// Parse the body of a request. INVALID_ARGUMENT: it is no such message.
absl::Status ParseRequest(std::span<const std::byte> body, google::protobuf::MessageLite* message);

// All below: INVALID_ARGUMENT names the field and what is wrong with it.
absl::StatusOr<Fingerprint> ReadFingerprint(const std::string& bytes);
// 1…`max` keys.
absl::StatusOr<std::vector<BlockKey>> ReadKeys(const std::string& bytes, uint32_t max);
// None, or one per key.
absl::StatusOr<std::vector<ContentId>> ReadContentIds(const std::string& bytes, size_t keys);
// 1…`max` tokens.
absl::StatusOr<std::vector<LeaseToken>> ReadLeases(const std::string& bytes, uint32_t max);
// One identifier of exactly its size, not all zero.
template <typename IdType>
absl::StatusOr<IdType> ReadId(const std::string& bytes, const char* field);

// `info` as clients see it, without its content id.
proto::Form MakeForm(const BlockStore& store, const FormInfo& info);

// Builds a LookupReply block by block; equal forms are listed once. Thread-compatible.
class LookupReplyBuilder {
 public:
  LookupReplyBuilder(const BlockStore& store, proto::LookupReply* reply)
      : store_(store), reply_(reply) {}
  // The next block of the prefix. False: the reply is as long as a message may be; nothing added.
  bool Add(const FormInfo& info);

 private:
  // The errors by their bits: a map cannot order what is not a number.
  using FormId =
      std::tuple<CodecId, uint8_t, bool, uint32_t, uint32_t, uint64_t, uint64_t, uint64_t>;

  const BlockStore& store_;
  proto::LookupReply* reply_;
  std::map<FormId, uint32_t> forms_;
  size_t bytes_ = 0;
};

}  // namespace tokura::node
