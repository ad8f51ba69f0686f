// The C ABI's operations once they are under way: waiting, ending, results.

#include <utility>

#include "client-lib/src/c_abi/boundary.h"
#include "client-lib/src/c_abi/handles.h"
#include "common/status_macros.h"

using tokura::ClientCore;
using tokura::Duration;
using tokura::c_abi::CheckNotNull;
using tokura::c_abi::Guarded;
using tokura::c_abi::GuardedMake;
using tokura::c_abi::GuardedQuietly;
using tokura::c_abi::OperationState;
using tokura::c_abi::WriteStruct;
using Kind = tokura::c_abi::OperationState::Kind;

namespace tokura::c_abi {
namespace {

void Cancel(const tokura_operation& operation) {
  operation.route->Post([state = operation.state](ClientCore& core) { state->CancelOn(core); });
}

// FAILED_PRECONDITION: not ended, or not of `kind`.
absl::Status CheckEnded(const tokura_operation* operation, Kind kind) {
  TOKURA_RETURN_IF_ERROR(CheckNotNull(operation, "operation"));
  if (operation->state->kind() != kind) {
    return absl::FailedPreconditionError("the operation has no result of this kind");
  }
  return operation->state->status();
}

absl::StatusOr<tokura_node_stat> DescribeNode(const tokura_operation* operation, size_t index) {
  TOKURA_RETURN_IF_ERROR(CheckEnded(operation, Kind::kStat));
  const auto& stats = std::get<std::vector<absl::StatusOr<NodeStat>>>(operation->state->outcome());
  if (index >= stats.size()) {
    return absl::OutOfRangeError(absl::StrCat("node ", index, " of ", stats.size()));
  }
  tokura_node_stat ours{};
  ours.node = ours.message = "";
  ours.code = static_cast<uint32_t>(stats[index].status().code());
  if (!stats[index].ok()) {
    // A status keeps its text with a 0 behind it, and may have none.
    const absl::string_view text = stats[index].status().message();
    ours.message = text.empty() ? "" : text.data();
    return ours;
  }
  const NodeStat& stat = *stats[index];
  ours.node = stat.node.c_str();
  ours.incarnation = stat.incarnation;
  ours.blocks = stat.blocks;
  ours.forms = stat.forms;
  ours.bytes_stored = stat.bytes_stored;
  ours.bytes_logical = stat.bytes_logical;
  ours.capacity_bytes = stat.capacity_bytes;
  ours.largest_free_bytes = stat.largest_free_bytes;
  ours.pinned_bytes = stat.pinned_bytes;
  ours.leases = stat.leases;
  return ours;
}

}  // namespace
}  // namespace tokura::c_abi

extern "C" {

int tokura_operation_done(const tokura_operation* operation) {
  return operation != nullptr && operation->state->done() ? 1 : 0;
}

int tokura_operation_wait(tokura_operation* operation, int64_t timeout_ns) {
  return operation != nullptr && operation->state->WaitDone(Duration(timeout_ns)) ? 1 : 0;
}

void tokura_operation_cancel(tokura_operation* operation) {
  GuardedQuietly([operation] {
    if (operation != nullptr) {
      tokura::c_abi::Cancel(*operation);
    }
  });
}

void tokura_operation_free(tokura_operation* operation) {
  GuardedQuietly([operation] {
    if (operation == nullptr) {
      return;
    }
    OperationState& state = *operation->state;
    if (state.kind() == Kind::kGet && !state.done()) {
      tokura::c_abi::Cancel(*operation);
      state.WaitDone(Duration::max());
    } else if (state.kind() == Kind::kPut) {
      state.WaitReleased(Duration::max());
    }
    if (!state.forked()) {
      delete operation;
    }
    // In a forked child a lock may be held by a thread that does not exist there: it stays.
  });
}

tokura_code tokura_operation_notify(tokura_operation* operation, void (*done)(void* context),
                                    void* context, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(operation, "operation"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(reinterpret_cast<const void*>(done), "done"));
    return operation->state->Notify(done, context);
  });
}

tokura_code tokura_operation_status(const tokura_operation* operation, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(operation, "operation"));
    return operation->state->status();
  });
}

int64_t tokura_operation_elapsed_ns(const tokura_operation* operation) {
  return operation == nullptr ? 0 : operation->state->elapsed().count();
}

int tokura_operation_layer_done(const tokura_operation* operation, uint32_t group, uint32_t layer) {
  if (operation == nullptr || operation->state->kind() != Kind::kGet) {
    return -1;
  }
  return operation->state->WaitLayer(group, layer, Duration::zero()) ? 1 : 0;
}

int tokura_operation_wait_layer(tokura_operation* operation, uint32_t group, uint32_t layer,
                                int64_t timeout_ns) {
  if (operation == nullptr || operation->state->kind() != Kind::kGet) {
    return -1;
  }
  return operation->state->WaitLayer(group, layer, Duration(timeout_ns)) ? 1 : 0;
}

int tokura_operation_released(const tokura_operation* operation) {
  if (operation == nullptr || operation->state->kind() != Kind::kPut) {
    return -1;
  }
  return operation->state->released() ? 1 : 0;
}

int tokura_operation_wait_released(tokura_operation* operation, int64_t timeout_ns) {
  if (operation == nullptr || operation->state->kind() != Kind::kPut) {
    return -1;
  }
  return operation->state->WaitReleased(Duration(timeout_ns)) ? 1 : 0;
}

tokura_match* tokura_operation_match(const tokura_operation* operation, tokura_error* error) {
  return GuardedMake<tokura_match>(error, [&]() -> absl::StatusOr<std::unique_ptr<tokura_match>> {
    TOKURA_RETURN_IF_ERROR(tokura::c_abi::CheckEnded(operation, Kind::kMatch));
    const auto& outcome = std::get<absl::StatusOr<tokura::Match>>(operation->state->outcome());
    return std::make_unique<tokura_match>(*outcome);
  });
}

tokura_code tokura_operation_result(const tokura_operation* operation, tokura_blocks_result* result,
                                    tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(operation, "operation"));
    TOKURA_RETURN_IF_ERROR(CheckNotNull(result, "tokura_blocks_result"));
    const Kind kind = operation->state->kind();
    if (kind != Kind::kGet && kind != Kind::kPut && kind != Kind::kRemove) {
      return absl::FailedPreconditionError("the operation has no result of this kind");
    }
    TOKURA_RETURN_IF_ERROR(operation->state->status());
    return WriteStruct(operation->state->BlocksResult(), "tokura_blocks_result", result,
                       result->struct_size);
  });
}

size_t tokura_operation_nodes(const tokura_operation* operation) {
  if (!tokura::c_abi::CheckEnded(operation, Kind::kStat).ok()) {
    return 0;
  }
  return std::get<std::vector<absl::StatusOr<tokura::NodeStat>>>(operation->state->outcome())
      .size();
}

tokura_code tokura_operation_node_stat(const tokura_operation* operation, size_t index,
                                       tokura_node_stat* stat, tokura_error* error) {
  return Guarded(error, [&]() -> absl::Status {
    TOKURA_RETURN_IF_ERROR(CheckNotNull(stat, "tokura_node_stat"));
    TOKURA_ASSIGN_OR_RETURN(const tokura_node_stat ours,
                            tokura::c_abi::DescribeNode(operation, index));
    return WriteStruct(ours, "tokura_node_stat", stat, stat->struct_size);
  });
}

}  // extern "C"
