// Macros over absl::Status. Errors from outside (network, configuration, requests) are returned by
// value.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define COPPICE_RETURN_IF_ERROR(expr)                                 \
  do {                                                                \
    if (absl::Status status_ = (expr); !status_.ok()) return status_; \
  } while (false)

#define COPPICE_CONCAT_INNER_(a, b) a##b
#define COPPICE_CONCAT_(a, b) COPPICE_CONCAT_INNER_(a, b)

// COPPICE_ASSIGN_OR_RETURN(auto value, Function()); returns the error of Function() to the caller.
#define COPPICE_ASSIGN_OR_RETURN(lhs, expr) \
  COPPICE_ASSIGN_OR_RETURN_IMPL_(COPPICE_CONCAT_(status_or_, __LINE__), lhs, expr)
#define COPPICE_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                                   \
  if (!tmp.ok()) return tmp.status();                  \
  lhs = *std::move(tmp)
