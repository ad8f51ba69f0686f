#include "common/sha256.h"

#include <bit>
#include <limits>

#include <openssl/evp.h>

#include "common/check.h"

namespace tokura {
namespace {

// Fetched once: an implicit fetch with every digest costs more than hashing a block's tokens.
const EVP_MD* Algorithm() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  TOKURA_CHECK(algorithm != nullptr);
  return algorithm;
}

}  // namespace

struct Sha256Writer::State {
  State() : context(EVP_MD_CTX_new()) { TOKURA_CHECK(context != nullptr); }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  EVP_MD_CTX* const context;
};

Sha256Writer::Sha256Writer() : state_(std::make_unique<State>()) {
  TOKURA_CHECK(EVP_DigestInit_ex2(state_->context, Algorithm(), nullptr) == 1);
}

Sha256Writer::~Sha256Writer() = default;

void Sha256Writer::Raw(std::span<const std::byte> bytes) {
  TOKURA_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1);
}

void Sha256Writer::Raw(std::string_view text) {
  Raw(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void Sha256Writer::U8(uint8_t value) {
  Raw(std::as_bytes(std::span<const uint8_t, 1>(&value, 1)));
}

void Sha256Writer::U32(uint32_t value) {
  U32s(std::span<const uint32_t, 1>(&value, 1));
}

void Sha256Writer::U32s(std::span<const uint32_t> values) {
  static_assert(std::endian::native == std::endian::little, "keys are hashed from memory");
  Raw(std::as_bytes(values));
}

void Sha256Writer::String(std::string_view text) {
  TOKURA_CHECK(text.size() <= std::numeric_limits<uint32_t>::max());
  U32(static_cast<uint32_t>(text.size()));
  Raw(text);
}

Sha256Writer::Digest Sha256Writer::Finish() {
  Digest digest;
  unsigned length = 0;
  TOKURA_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()),
                                  &length) == 1);
  TOKURA_CHECK(length == digest.size());
  TOKURA_CHECK(EVP_DigestInit_ex2(state_->context, Algorithm(), nullptr) == 1);
  return digest;
}

}  // namespace tokura
