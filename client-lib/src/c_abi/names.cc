// What needs no client: versions, codes, namespaces, chains and matches.

#include <iterator>
#include <utility>

#include "client-lib/src/c_abi/boundary.h"
#include "client-lib/src/c_abi/handles.h"
#include "client-lib/src/sequence_plan.h"
#include "common/log.h"
#include "common/net/ucx_version.h"
#include "common/status_macros.h"

using tokura::c_abi::CheckNotNull;
using tokura::c_abi::Guarded;
using tokura::c_abi::GuardedMake;
using tokura::c_abi::GuardedQuietly;
using tokura::c_abi::ReadStruct;

static_assert(sizeof(tokura::BlockKey) == TOKURA_KEY_BYTES);
static_assert(sizeof(tokura::Fingerprint) == TOKURA_FINGERPRINT_BYTES);
static_assert(sizeof(tokura::ContentId) == TOKURA_CONTENT_ID_BYTES);

namespace tokura::c_abi {
namespace {

absl::StatusOr<uint32_t> ReadEnum(uint32_t value, uint32_t first, uint32_t last, const char* name) {
  if (value < first || value > last) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is ", value, ", not ", first, " to ", last));
  }
  return value;
}

absl::StatusOr<LayerGroup> ReadGroup(const tokura_layer_group* theirs) {
  tokura_layer_group group{};
  TOKURA_RETURN_IF_ERROR(ReadStruct(theirs, "tokura_layer_group", &group));
  TOKURA_RETURN_IF_ERROR(CheckNotNull(group.layers, "tokura_layer_group.layers"));
  TOKURA_ASSIGN_OR_RETURN(const uint32_t kind,
                          ReadEnum(group.kind, TOKURA_ATTENTION_FULL, TOKURA_ATTENTION_OTHER,
                                   "tokura_layer_group.kind"));
  LayerGroup ours;
  ours.kind = static_cast<AttentionKind>(kind);
  ours.window = group.window;
  ours.layers.assign(group.layers, group.layers + group.layers_count);
  ours.kv_heads = group.kv_heads;
  ours.k_head_dim = group.k_head_dim;
  ours.v_head_dim = group.v_head_dim;
  return ours;
}

absl::Status ReadText(const char* theirs, const char* name, std::string* ours) {
  TOKURA_RETURN_IF_ERROR(CheckNotNull(theirs, name));
  *ours = theirs;
  return absl::OkStatus();
}

absl::StatusOr<NamespaceSpec> ReadSpec(const tokura_namespace_spec* theirs) {
  tokura_namespace_spec spec{};
  TOKURA_RETURN_IF_ERROR(ReadStruct(theirs, "tokura_namespace_spec", &spec));
  NamespaceSpec ours;
  TOKURA_RETURN_IF_ERROR(ReadText(spec.tenant, "tenant", &ours.tenant));
  TOKURA_RETURN_IF_ERROR(ReadText(spec.model, "model", &ours.model));
  TOKURA_RETURN_IF_ERROR(ReadText(spec.model_revision, "model_revision", &ours.model_revision));
  TOKURA_RETURN_IF_ERROR(ReadText(spec.lora_digest, "lora_digest", &ours.lora_digest));
  TOKURA_RETURN_IF_ERROR(ReadText(spec.salt, "salt", &ours.salt));
  TOKURA_ASSIGN_OR_RETURN(const uint32_t dtype,
                          ReadEnum(spec.dtype, TOKURA_FLOAT32, TOKURA_FLOAT8_E4M3, "dtype"));
  TOKURA_ASSIGN_OR_RETURN(const uint32_t rope,
                          ReadEnum(spec.rope, TOKURA_ROPE_POST, TOKURA_ROPE_NONE, "rope"));
  ours.dtype = static_cast<DType>(dtype);
  ours.rope = static_cast<RopeState>(rope);
  ours.head_shards = spec.head_shards;
  ours.block_tokens = spec.block_tokens;
  if (spec.groups_count > 0) {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(spec.groups, "groups"));
  }
  for (size_t g = 0; g < spec.groups_count; ++g) {
    TOKURA_ASSIGN_OR_RETURN(LayerGroup group, ReadGroup(spec.groups[g]));
    ours.groups.push_back(std::move(group));
  }
  return ours;
}

}  // namespace
}  // namespace tokura::c_abi

absl::Status tokura_chain::Become(Origin wanted) {
  if (origin == Origin::kNone) {
    origin = wanted;
    if (wanted == Origin::kTokens) {
      tokens.emplace(ns->fingerprint(), ns->spec().block_tokens);
    }
  }
  static constexpr const char* kNames[] = {"nothing", "tokens", "engine hashes", "keys"};
  return origin == wanted ? absl::OkStatus()
                          : absl::FailedPreconditionError(absl::StrCat(
                                "the chain is made of ", kNames[static_cast<size_t>(origin)],
                                ", not of ", kNames[static_cast<size_t>(wanted)]));
}

std::span<const tokura::BlockKey> tokura_chain::Keys() const {
  return tokens.has_value() ? tokens->keys() : std::span<const tokura::BlockKey>(keys);
}

tokura::TokenChain tokura_chain::Snapshot() const {
  return tokens.has_value()
             ? *tokens
             : tokura::TokenChain::FromKeys(ns->fingerprint(), ns->spec().block_tokens, keys);
}

tokura_match::tokura_match(tokura::Match found) : match(std::move(found)) {
  for (const std::string& codec : match.codecs) {
    codecs.push_back(codec.c_str());
  }
  for (const tokura::Match::Run& run : match.runs) {
    runs.push_back({match.holders[run.holder].node.c_str(), run.first, run.count});
  }
}

extern "C" {

uint32_t tokura_abi_version(void) {
  return TOKURA_ABI_VERSION;
}

const char* tokura_version(void) {
  return TOKURA_LIBRARY_VERSION;
}

const char* tokura_ucx_version_built(void) {
  static const std::string& version = *new std::string(tokura::net::UcxHeaderVersion());
  return version.c_str();
}

const char* tokura_ucx_version_loaded(void) {
  static const std::string& version = *new std::string(tokura::net::UcxLibraryVersion());
  return version.c_str();
}

const char* tokura_code_name(tokura_code code) {
  static constexpr const char* kNames[] = {"OK",
                                           "CANCELLED",
                                           "UNKNOWN",
                                           "INVALID_ARGUMENT",
                                           "DEADLINE_EXCEEDED",
                                           "NOT_FOUND",
                                           "ALREADY_EXISTS",
                                           "PERMISSION_DENIED",
                                           "RESOURCE_EXHAUSTED",
                                           "FAILED_PRECONDITION",
                                           "ABORTED",
                                           "OUT_OF_RANGE",
                                           "UNIMPLEMENTED",
                                           "INTERNAL",
                                           "UNAVAILABLE",
                                           "DATA_LOSS",
                                           "UNAUTHENTICATED"};
  const auto index = static_cast<size_t>(code);
  const auto unknown = static_cast<size_t>(TOKURA_UNKNOWN);
  return kNames[index < std::size(kNames) ? index : unknown];
}

tokura_code tokura_set_log_level(const char* level, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(level, "level"));
    tokura::LogLevel parsed = tokura::LogLevel::kInfo;
    if (!tokura::ParseLogLevel(level, &parsed)) {
      return absl::InvalidArgumentError(
          absl::StrCat("level is \"", level, "\", not trace, debug, info, warn or error"));
    }
    tokura::SetLogLevel(parsed);
    return absl::OkStatus();
  });
}

const uint8_t* tokura_bytes_data(const tokura_bytes* bytes) {
  return bytes == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(bytes->data.data());
}

size_t tokura_bytes_size(const tokura_bytes* bytes) {
  return bytes == nullptr ? 0 : bytes->data.size();
}

void tokura_bytes_free(tokura_bytes* bytes) {
  delete bytes;
}

tokura_namespace* tokura_namespace_create(const tokura_namespace_spec* spec, tokura_error* error) {
  return GuardedMake<tokura_namespace>(
      error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_namespace>> {
        TOKURA_ASSIGN_OR_RETURN(tokura::NamespaceSpec ours, tokura::c_abi::ReadSpec(spec));
        TOKURA_RETURN_IF_ERROR(tokura::ValidateNamespace(ours));
        auto made = std::make_unique<tokura_namespace>();
        made->ns = std::make_shared<const tokura::Namespace>(std::move(ours));
        return made;
      });
}

void tokura_namespace_free(tokura_namespace* ns) {
  delete ns;
}

const uint8_t* tokura_namespace_fingerprint(const tokura_namespace* ns) {
  return ns == nullptr ? nullptr : ns->ns->fingerprint().bytes.data();
}

uint64_t tokura_namespace_block_bytes(const tokura_namespace* ns) {
  uint64_t bytes = 0;
  for (size_t g = 0; ns != nullptr && g < ns->ns->spec().groups.size(); ++g) {
    bytes += tokura::RawBytes(ns->ns->Shape(g)) * ns->ns->spec().head_shards;
  }
  return bytes;
}

tokura_chain* tokura_chain_create(const tokura_namespace* ns, tokura_error* error) {
  return GuardedMake<tokura_chain>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_chain>> {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(ns, "namespace"));
    auto made = std::make_unique<tokura_chain>();
    made->ns = ns->ns;
    return made;
  });
}

tokura_chain* tokura_chain_copy(const tokura_chain* chain, tokura_error* error) {
  return GuardedMake<tokura_chain>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_chain>> {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
    return std::make_unique<tokura_chain>(*chain);
  });
}

void tokura_chain_free(tokura_chain* chain) {
  delete chain;
}

tokura_code tokura_chain_append_tokens(tokura_chain* chain, const uint32_t* tokens,
                                       size_t tokens_count, const tokura_key_extra* extras,
                                       size_t extras_count, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
    TOKURA_RETURN_IF_ERROR(tokens_count > 0 ? CheckNotNull(tokens, "tokens") : absl::OkStatus());
    TOKURA_RETURN_IF_ERROR(extras_count > 0 ? CheckNotNull(extras, "extras") : absl::OkStatus());
    std::vector<tokura::KeyExtra> items;
    for (size_t i = 0; i < extras_count; ++i) {
      TOKURA_RETURN_IF_ERROR(CheckNotNull(extras[i].hash, "an extra's hash"));
      items.push_back({.kind = extras[i].kind,
                       .bytes = std::string(reinterpret_cast<const char*>(extras[i].hash),
                                            extras[i].hash_bytes)});
    }
    TOKURA_RETURN_IF_ERROR(chain->Become(tokura_chain::Origin::kTokens));
    chain->tokens->Append(std::span(tokens, tokens_count), items);
    return absl::OkStatus();
  });
}

tokura_code tokura_chain_append_engine_hash(tokura_chain* chain, const uint8_t* hash,
                                            size_t hash_bytes, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(hash, "hash"));
    if (hash_bytes == 0) {
      return absl::InvalidArgumentError("hash has no bytes");
    }
    TOKURA_RETURN_IF_ERROR(chain->Become(tokura_chain::Origin::kHashes));
    chain->keys.push_back(tokura::EngineBlockKey(chain->ns->fingerprint(),
                                                 std::as_bytes(std::span(hash, hash_bytes))));
    return absl::OkStatus();
  });
}

tokura_code tokura_chain_append_keys(tokura_chain* chain, const uint8_t* keys, size_t keys_count,
                                     tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(chain, "chain"));
    TOKURA_RETURN_IF_ERROR(keys_count > 0 ? CheckNotNull(keys, "keys") : absl::OkStatus());
    TOKURA_RETURN_IF_ERROR(chain->Become(tokura_chain::Origin::kKeys));
    const auto bytes = std::as_bytes(std::span(keys, keys_count * TOKURA_KEY_BYTES));
    for (size_t i = 0; i < keys_count; ++i) {
      chain->keys.push_back(tokura::BlockKey::FromBytes(
          bytes.subspan(i * TOKURA_KEY_BYTES).first<TOKURA_KEY_BYTES>()));
    }
    return absl::OkStatus();
  });
}

size_t tokura_chain_blocks(const tokura_chain* chain) {
  return chain == nullptr ? 0 : chain->Keys().size();
}

uint64_t tokura_chain_tokens(const tokura_chain* chain) {
  if (chain == nullptr) {
    return 0;
  }
  return chain->tokens.has_value() ? chain->tokens->tokens()
                                   : uint64_t{chain->keys.size()} * chain->ns->spec().block_tokens;
}

const uint8_t* tokura_chain_keys(const tokura_chain* chain) {
  return chain == nullptr ? nullptr : reinterpret_cast<const uint8_t*>(chain->Keys().data());
}

tokura_code tokura_match_describe(const tokura_match* match, tokura_match_info* info,
                                  tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(match, "match"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(info, "tokura_match_info"));
    tokura_match_info ours{};
    ours.blocks = match->match.blocks();
    ours.block_tokens = match->match.block_tokens;
    ours.held = match->match.held() ? 1 : 0;
    ours.keys = reinterpret_cast<const uint8_t*>(match->match.keys.data());
    ours.fingerprint = match->match.fingerprint.bytes.data();
    const bool codecs_known = match->codecs.size() == ours.blocks;
    ours.codecs = codecs_known ? match->codecs.data() : nullptr;
    const bool bytes_known = match->match.stored_bytes.size() == ours.blocks;
    ours.stored_bytes = bytes_known ? match->match.stored_bytes.data() : nullptr;
    ours.runs = match->runs.data();
    ours.runs_count = match->runs.size();
    return tokura::c_abi::WriteStruct(ours, "tokura_match_info", info, info->struct_size);
  });
}

tokura_bytes* tokura_match_to_bytes(const tokura_match* match, tokura_error* error) {
  return GuardedMake<tokura_bytes>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_bytes>> {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(match, "match"));
    auto made = std::make_unique<tokura_bytes>();
    made->data = match->match.Serialize();
    return made;
  });
}

tokura_match* tokura_match_from_bytes(const uint8_t* data, size_t size, tokura_error* error) {
  return GuardedMake<tokura_match>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_match>> {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(data, "data"));
    TOKURA_ASSIGN_OR_RETURN(tokura::Match match, tokura::Match::Parse(std::string_view(
                                                     reinterpret_cast<const char*>(data), size)));
    return std::make_unique<tokura_match>(std::move(match));
  });
}

void tokura_match_free(tokura_match* match) {
  delete match;
}

}  // extern "C"
