// The defaults of the C ABI's structs: the C++ client's own.

#include "client-lib/src/c_abi/boundary.h"
#include "tokura.h"
#include "tokura/types.h"

namespace tokura::c_abi {
namespace {

template <typename T>
tokura_code Init(T* theirs, size_t struct_size, const char* name, const T& defaults) {
  return Report(WriteStruct(defaults, name, theirs, struct_size), nullptr);
}

tokura_client_options ClientDefaults() {
  static const ClientOptions options;  // its strings live as long as the library
  tokura_client_options defaults{};
  defaults.name = options.name.c_str();
  defaults.ingest_codec = options.ingest_codec.c_str();
  defaults.ring_bytes = options.ring_bytes;
  defaults.window_bytes = options.window_bytes;
  defaults.part_bytes_max = options.part_bytes_max;
  defaults.inline_decode_bytes = options.inline_decode_bytes;
  defaults.codec_threads = options.codec_threads;
  defaults.operations_max = options.operations_max;
  defaults.sink_tokens = options.sink_tokens;
  defaults.accept_proxy_error = options.accept_proxy_error ? 1 : 0;
  defaults.wake_spin = options.wake == ClientOptions::Wake::kSpin ? 1 : 0;
  defaults.progress_timeout_ns = options.progress_timeout.count();
  defaults.connect_timeout_ns = options.connect_timeout.count();
  defaults.heartbeat_ns = options.heartbeat.count();
  defaults.dead_after_ns = options.dead_after.count();
  defaults.breaker_backoff_min_ns = options.breaker_backoff_min.count();
  defaults.breaker_backoff_max_ns = options.breaker_backoff_max.count();
  defaults.spin_ns = options.spin.count();
  return defaults;
}

tokura_namespace_spec NamespaceDefaults() {
  static const NamespaceSpec spec;
  tokura_namespace_spec defaults{};
  defaults.tenant = spec.tenant.c_str();
  defaults.model = defaults.model_revision = defaults.lora_digest = defaults.salt = "";
  defaults.dtype = static_cast<uint32_t>(spec.dtype);
  defaults.rope = static_cast<uint32_t>(spec.rope);
  defaults.head_shards = spec.head_shards;
  defaults.block_tokens = spec.block_tokens;
  return defaults;
}

}  // namespace
}  // namespace tokura::c_abi

using tokura::c_abi::Init;

extern "C" {

tokura_code tokura_client_options_init(tokura_client_options* options, size_t struct_size) {
  return Init(options, struct_size, "tokura_client_options", tokura::c_abi::ClientDefaults());
}

tokura_code tokura_namespace_spec_init(tokura_namespace_spec* spec, size_t struct_size) {
  return Init(spec, struct_size, "tokura_namespace_spec", tokura::c_abi::NamespaceDefaults());
}

tokura_code tokura_layer_group_init(tokura_layer_group* group, size_t struct_size) {
  return Init(group, struct_size, "tokura_layer_group", tokura_layer_group{});
}

tokura_code tokura_kv_view_init(tokura_kv_view* view, size_t struct_size) {
  tokura_kv_view defaults{};
  defaults.dtype = TOKURA_FLOAT16;
  return Init(view, struct_size, "tokura_kv_view", defaults);
}

tokura_code tokura_sequence_view_init(tokura_sequence_view* view, size_t struct_size) {
  return Init(view, struct_size, "tokura_sequence_view", tokura_sequence_view{});
}

tokura_code tokura_accept_options_init(tokura_accept_options* options, size_t struct_size) {
  tokura_accept_options defaults{};
  defaults.max_error = -1;
  defaults.touch = 1;
  defaults.deadline_ns = -1;
  return Init(options, struct_size, "tokura_accept_options", defaults);
}

tokura_code tokura_get_options_init(tokura_get_options* options, size_t struct_size) {
  tokura_get_options defaults{};
  defaults.max_error = -1;
  defaults.deadline_ns = -1;
  return Init(options, struct_size, "tokura_get_options", defaults);
}

tokura_code tokura_put_options_init(tokura_put_options* options, size_t struct_size) {
  tokura_put_options defaults{};
  defaults.deadline_ns = -1;
  return Init(options, struct_size, "tokura_put_options", defaults);
}

}  // extern "C"
