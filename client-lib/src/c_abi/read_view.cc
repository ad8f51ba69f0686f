#include "client-lib/src/c_abi/read_view.h"

#include <utility>

#include "client-lib/src/c_abi/boundary.h"
#include "common/status_macros.h"

namespace tokura::c_abi {
namespace {

kernels::KvStrides ReadStrides(const tokura_kv_strides& theirs) {
  return {
      .page = theirs.page, .head = theirs.head, .token = theirs.token, .channel = theirs.channel};
}

absl::Status CheckView(const tokura_kv_view& view, MemoryUse use) {
  if (view.dtype < TOKURA_FLOAT32 || view.dtype > TOKURA_FLOAT8_E4M3) {
    return absl::InvalidArgumentError(absl::StrCat("dtype ", view.dtype, " of a view is unknown"));
  }
  if (view.space > TOKURA_CUDA) {
    return absl::InvalidArgumentError(absl::StrCat("space ", view.space, " of a view is unknown"));
  }
  if (view.read_only != 0 && use == MemoryUse::kWritten) {
    return absl::InvalidArgumentError("a get cannot write a read-only view");
  }
  if (view.page_table_count > 0) {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(view.page_table, "page_table"));
  }
  return view.layers_count > 0 ? CheckNotNull(view.layers, "layers") : absl::OkStatus();
}

absl::StatusOr<kernels::KvView> ReadView(const tokura_kv_view* theirs, MemoryUse use) {
  tokura_kv_view view{};
  TOKURA_RETURN_IF_ERROR(ReadStruct(theirs, "tokura_kv_view", &view));
  TOKURA_RETURN_IF_ERROR(CheckView(view, use));
  kernels::KvView ours;
  ours.dtype = static_cast<DType>(view.dtype);
  ours.space = static_cast<kernels::MemorySpace>(view.space);
  ours.heads = view.heads;
  ours.k_head_dim = view.k_head_dim;
  ours.v_head_dim = view.v_head_dim;
  ours.tokens = view.tokens;
  ours.page_tokens = view.page_tokens;
  ours.page_table.assign(view.page_table, view.page_table + view.page_table_count);
  ours.layers.reserve(view.layers_count);
  for (size_t i = 0; i < view.layers_count; ++i) {
    ours.layers.push_back(
        {static_cast<std::byte*>(view.layers[i].k), static_cast<std::byte*>(view.layers[i].v)});
  }
  ours.k_strides = ReadStrides(view.k_strides);
  ours.v_strides = ReadStrides(view.v_strides);
  return ours;
}

}  // namespace

absl::StatusOr<SequenceView> ReadSequenceView(const Namespace& ns,
                                              const tokura_sequence_view* theirs, MemoryUse use) {
  tokura_sequence_view view{};
  TOKURA_RETURN_IF_ERROR(ReadStruct(theirs, "tokura_sequence_view", &view));
  if (view.groups_count > 0) {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(view.groups, "groups"));
  }
  SequenceView ours;
  ours.first_shard = view.first_shard;
  const uint32_t shards = ns.spec().head_shards;
  const uint32_t rest = shards > view.first_shard ? shards - view.first_shard : 0;
  ours.shards = view.shards == 0 ? rest : view.shards;
  ours.first_token = view.first_token;
  for (size_t g = 0; g < view.groups_count; ++g) {
    ours.groups.emplace_back();
    if (view.groups[g] != nullptr) {
      TOKURA_ASSIGN_OR_RETURN(ours.groups.back(), ReadView(view.groups[g], use));
    }
  }
  return ours;
}

}  // namespace tokura::c_abi
