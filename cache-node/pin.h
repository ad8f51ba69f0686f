#pragma once

// What a stored form is, and the RAII pin that keeps its bytes where they are.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "common/ids.h"
#include "kernels/part.h"

namespace tokura::node {

struct StoredForm;  // cache-node/index.h

// Interned codec name of a store (BlockStore::CodecText gives the text).
using CodecId = uint16_t;

// One stored representation of a block. Fixed once the form is complete.
struct FormInfo {
  ContentId content_id;
  CodecId codec = 0;
  kernels::Fidelity fidelity = kernels::Fidelity::kExact;
  bool proxy_error = false;  // some part's error was judged by its own keys; false for exact forms
  uint32_t group_mask = 0;
  uint32_t shards = 0;
  uint64_t stored_bytes = 0;   // of all parts, as put
  uint64_t logical_bytes = 0;  // of the same tokens in the engine's dtype
  double error_mean = 0;       // over layers; infinite when the writer measured nothing; 0 = exact
  double error_max = 0;
  friend bool operator==(const FormInfo&, const FormInfo&) = default;
};

struct PartSlot;  // cache-node/index.h

// What a pin needs of the store.
class PinOwner {
 public:
  virtual ~PinOwner() = default;
  virtual void Unpin(StoredForm& form) = 0;
  virtual std::span<std::byte> Payload(const PartSlot& slot) const = 0;
};

// Keeps one complete form in place: while it exists, the form's bytes neither move nor change nor
// are freed, whatever the evictor and Remove do. Move-only; the store outlives it.
// Thread-compatible; a pin may be destroyed on any thread (which takes the store's lock when the
// form was removed meanwhile, so do not hold a lock that the store's callers take).
class FormPin {
 public:
  FormPin() = default;
  FormPin(FormPin&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), form_(std::exchange(other.form_, nullptr)) {}
  FormPin& operator=(FormPin&& other) noexcept;
  ~FormPin() { Reset(); }

  // Whether it pins anything. Everything below needs that.
  bool valid() const { return form_ != nullptr; }
  // Another pin of the same form.
  FormPin Clone() const;
  // Unpin now.
  void Reset();

  const FormInfo& info() const;
  const Fingerprint& fingerprint() const;
  const BlockKey& key() const;
  // Whether the form's bytes were found damaged since it was pinned.
  bool damaged() const;
  // The stored bytes of `part`, 64-byte aligned, in the arena (wrap them in a RegisteredSpan to
  // send them); empty when the form does not have that part. Nobody writes them while this pin
  // exists.
  std::span<std::byte> part(PartId part) const;

 private:
  friend class BlockStore;
  friend class StoreCore;
  FormPin(PinOwner* owner, StoredForm* form) : owner_(owner), form_(form) {}

  PinOwner* owner_ = nullptr;
  StoredForm* form_ = nullptr;
};

}  // namespace tokura::node
