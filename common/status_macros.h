#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Return from the enclosing function when `expr`, an absl::Status, is not OK.
#define TOKURA_RETURN_IF_ERROR(expr)                    \
  do {                                                  \
    if (absl::Status status_ = (expr); !status_.ok()) { \
      return status_;                                   \
    }                                                   \
  } while (false)

#define TOKURA_STATUS_CONCAT_INNER(a, b) a##b
#define TOKURA_STATUS_CONCAT(a, b) TOKURA_STATUS_CONCAT_INNER(a, b)

// Evaluate `expr`, an absl::StatusOr<T>; return its status when it is not OK, else bind the value
// to `lhs`.
#define TOKURA_ASSIGN_OR_RETURN(lhs, expr) \
  TOKURA_ASSIGN_OR_RETURN_IMPL(TOKURA_STATUS_CONCAT(status_or_, __LINE__), lhs, expr)
#define TOKURA_ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr) \
  auto tmp = (expr);                                 \
  if (!tmp.ok()) {                                   \
    return std::move(tmp).status();                  \
  }                                                  \
  lhs = std::move(tmp).value()
