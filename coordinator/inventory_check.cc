#include "coordinator/inventory_check.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/ids.h"
#include "common/status_macros.h"
#include "coordinator/inventory.h"
#include "proto/accept.h"

namespace tokura::coordinator {
namespace {

constexpr size_t kKeyBytes = BlockKey::kBytes;
constexpr int kClassesMax = 1024;  // per batch
constexpr size_t kCodecBytesMax = 64;
constexpr uint32_t kShardsMax = 256;
constexpr uint32_t kGroupMaskMax = 255;

template <typename... Parts>
absl::Status Malformed(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat("inventory: ", parts...));
}

absl::Status CheckSequence(const proto::InventoryBatch& batch) {
  if (batch.first_seq() > batch.last_seq()) {
    return Malformed("first_seq ", batch.first_seq(), " is above last_seq ", batch.last_seq());
  }
  if (batch.snapshot() == 0) {
    return batch.chunk() != 0 || batch.last_chunk() ? Malformed("deltas have no chunks")
                                                    : absl::OkStatus();
  }
  if (batch.first_seq() != batch.last_seq()) {
    return Malformed("a snapshot is of one position, not of ", batch.first_seq(), " to ",
                     batch.last_seq());
  }
  return batch.removed().empty() ? absl::OkStatus() : Malformed("removed keys in a snapshot");
}

absl::Status CheckClasses(const proto::InventoryBatch& batch) {
  if (batch.classes_size() > kClassesMax) {
    return Malformed(batch.classes_size(), " classes; at most ", kClassesMax);
  }
  for (const proto::FormClass& form_class : batch.classes()) {
    if (form_class.codec().empty() || form_class.codec().size() > kCodecBytesMax) {
      return Malformed("a codec name of ", form_class.codec().size(), " bytes");
    }
    if (form_class.fidelity() < kWireExact || form_class.fidelity() > kWireSummary) {
      return Malformed("fidelity ", form_class.fidelity());
    }
    if (form_class.group_mask() == 0 || form_class.group_mask() > kGroupMaskMax) {
      return Malformed("group_mask ", form_class.group_mask());
    }
    if (form_class.shards() == 0 || form_class.shards() > kShardsMax) {
      return Malformed("shards ", form_class.shards());
    }
  }
  return absl::OkStatus();
}

absl::Status CheckKeys(const proto::InventoryBatch& batch) {
  const auto check_size = [](const char* column, const std::string& keys) {
    return keys.size() % kKeyBytes == 0 ? absl::OkStatus()
                                        : Malformed(column, " has ", keys.size(), " bytes");
  };
  TOKURA_RETURN_IF_ERROR(check_size("keys", batch.keys()));
  TOKURA_RETURN_IF_ERROR(check_size("removed", batch.removed()));
  if (batch.parents().size() != batch.keys().size()) {
    return Malformed("parents has ", batch.parents().size(), " bytes, keys ", batch.keys().size());
  }
  const size_t keys = (batch.keys().size() + batch.removed().size()) / kKeyBytes;
  if (keys > kInventoryKeysMax) {
    return Malformed(keys, " keys; at most ", kInventoryKeysMax);
  }
  static constexpr char kZero[kKeyBytes] = {};
  for (size_t at = 0; at < batch.keys().size(); at += kKeyBytes) {
    const char* key = batch.keys().data() + at;
    if (std::memcmp(key, kZero, kKeyBytes) == 0) {
      return Malformed("key ", at / kKeyBytes, " is zero");
    }
    if (std::memcmp(key, batch.parents().data() + at, kKeyBytes) == 0) {
      return Malformed("key ", at / kKeyBytes, " is its own parent");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckForms(const proto::InventoryBatch& batch) {
  const size_t keys = batch.keys().size() / kKeyBytes;
  if (static_cast<size_t>(batch.forms_size()) != keys) {
    return Malformed("forms has ", batch.forms_size(), " entries for ", keys, " keys");
  }
  uint64_t forms = 0;
  for (const uint32_t count : batch.forms()) {
    if (count == 0) {
      return Malformed("a key that is held in no form");
    }
    forms += count;
  }
  if (forms > kInventoryFormsMax) {
    return Malformed(forms, " forms; at most ", kInventoryFormsMax);
  }
  const auto has_all = [&](int entries) { return static_cast<uint64_t>(entries) == forms; };
  if (!has_all(batch.form_class_size()) || !has_all(batch.stored_bytes_size()) ||
      !has_all(batch.error_mean_size()) || !has_all(batch.error_max_size())) {
    return Malformed("columns of ", batch.form_class_size(), ", ", batch.stored_bytes_size(), ", ",
                     batch.error_mean_size(), " and ", batch.error_max_size(), " entries for ",
                     forms, " forms");
  }
  const auto classes = static_cast<uint32_t>(batch.classes_size());
  for (const uint32_t form_class : batch.form_class()) {
    if (form_class >= classes) {
      return Malformed("class ", form_class, " of ", classes);
    }
  }
  // NaN as well: it has no place in an order.
  const auto is_error = [](float error) { return error >= 0; };
  if (!std::all_of(batch.error_mean().begin(), batch.error_mean().end(), is_error) ||
      !std::all_of(batch.error_max().begin(), batch.error_max().end(), is_error)) {
    return Malformed("an error that is negative or not a number");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckInventoryBatch(const proto::InventoryBatch& batch) {
  TOKURA_RETURN_IF_ERROR(CheckSequence(batch));
  TOKURA_RETURN_IF_ERROR(CheckClasses(batch));
  TOKURA_RETURN_IF_ERROR(CheckKeys(batch));
  return CheckForms(batch);
}

}  // namespace tokura::coordinator
