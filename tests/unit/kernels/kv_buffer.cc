#include "kv_buffer.h"

#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "common/status_macros.h"
#include "kernels/float_convert.h"

namespace tokura::kernels {
namespace {

constexpr std::byte kCanary{0xa5};
constexpr size_t kMargin = 4096;

// Strides that the layout has inside a page, and the bytes of K and V of one page.
struct PageLayout {
  KvStrides k;
  KvStrides v;
  int64_t v_offset = 0;  // of V's first element from K's
};

PageLayout MakeLayout(Layout layout, const BufferShape& s) {
  const auto e = static_cast<int64_t>(DTypeBytes(s.dtype));
  const int64_t n = s.page_tokens;
  const int64_t h = s.heads;
  const int64_t dk = s.k_dim;
  const int64_t dv = s.v_dim;
  switch (layout) {
    case Layout::kTokenMajor: {
      const int64_t k_page = n * h * dk * e;
      const int64_t page = k_page + n * h * dv * e;
      return {{page, dk * e, h * dk * e, e}, {page, dv * e, h * dv * e, e}, k_page};
    }
    case Layout::kVllmCpu: {
      const int64_t head = (dk + dv) * n * e;
      return {{h * head, head, e, n * e}, {h * head, head, dv * e, e}, dk * n * e};
    }
    case Layout::kOdd: {
      const int64_t channel = e + 1;
      const int64_t token = channel * std::max(dk, dv) + 3;
      const int64_t head = token * n + 5;
      const int64_t page = head * h + 7;
      return {{2 * page, head, token, channel}, {2 * page, head, token, channel}, page};
    }
    default: {
      const int64_t k_page = h * n * dk * e;
      const int64_t page = k_page + h * n * dv * e;
      return {{page, n * dk * e, dk * e, e}, {page, n * dv * e, dv * e, e}, k_page};
    }
  }
}

}  // namespace

KvBuffer::KvBuffer(Layout layout, const BufferShape& shape) : shape_(shape) {
  const PageLayout pages = MakeLayout(layout, shape);
  const uint32_t count = (shape.tokens + shape.page_tokens - 1) / shape.page_tokens;
  const int64_t layer_bytes = pages.k.page * (count + 1) + 16;
  memory_.assign(2 * kMargin + static_cast<size_t>(layer_bytes) * shape.layers, kCanary);
  view_.dtype = shape.dtype;
  view_.heads = shape.heads;
  view_.k_head_dim = shape.k_dim;
  view_.v_head_dim = shape.v_dim;
  view_.tokens = shape.tokens;
  view_.page_tokens = shape.page_tokens;
  view_.k_strides = pages.k;
  view_.v_strides = pages.v;
  for (uint32_t i = 0; i < count; ++i) {
    view_.page_table.push_back(count - i);  // backwards, page 0 unused
  }
  const size_t odd = layout == Layout::kOdd ? 1 : 0;
  for (uint32_t layer = 0; layer < shape.layers; ++layer) {
    std::byte* base = memory_.data() + kMargin + layer * static_cast<size_t>(layer_bytes) + odd;
    view_.layers.push_back({base, shape.v_dim == 0 ? nullptr : base + pages.v_offset});
  }
}

std::byte* KvBuffer::Address(const At& at) const {
  return at.side == Side::kK
             ? view_.KAt(at.layer, at.token, at.head) + at.channel * view_.k_strides.channel
             : view_.VAt(at.layer, at.token, at.head) + at.channel * view_.v_strides.channel;
}

uint32_t KvBuffer::Bits(const At& at) const {
  uint32_t bits = 0;
  std::memcpy(&bits, Address(at), DTypeBytes(shape_.dtype));
  return bits;
}

void KvBuffer::SetBits(const At& at, uint32_t bits) {
  std::memcpy(Address(at), &bits, DTypeBytes(shape_.dtype));
}

float KvBuffer::Value(const At& at) const {
  return LoadElement(shape_.dtype, Address(at));
}

void KvBuffer::Set(const At& at, float value) {
  StoreElement(shape_.dtype, value, Address(at));
}

void KvBuffer::ForEach(const std::function<void(const At&)>& visit) const {
  for (const Side side : {Side::kK, Side::kV}) {
    const uint32_t dim = side == Side::kK ? shape_.k_dim : shape_.v_dim;
    for (uint32_t layer = 0; layer < shape_.layers; ++layer) {
      for (uint32_t head = 0; head < shape_.heads; ++head) {
        for (uint32_t token = 0; token < shape_.tokens; ++token) {
          for (uint32_t channel = 0; channel < dim; ++channel) {
            visit({side, layer, head, token, channel});
          }
        }
      }
    }
  }
}

void KvBuffer::Randomize(TestRandom& random) {
  ForEach([&](const At& at) {
    const float offset = at.side == Side::kK && at.channel % 16 == 3 ? 6.0f : 0.0f;
    Set(at, Normal(random) + offset);
  });
}

void KvBuffer::FillCanary() {
  std::fill(memory_.begin(), memory_.end(), kCanary);
}

bool KvBuffer::CanaryIntact(uint32_t first_head, uint32_t heads, uint32_t first,
                            uint32_t count) const {
  std::vector<std::byte> copy = memory_;
  ForEach([&](const At& at) {
    if (at.head >= first_head && at.head < first_head + heads && at.token >= first &&
        at.token < first + count) {
      std::memset(copy.data() + (Address(at) - memory_.data()), static_cast<int>(kCanary),
                  DTypeBytes(shape_.dtype));
    }
  });
  return copy == std::vector<std::byte>(copy.size(), kCanary);
}

float Normal(TestRandom& random) {
  const double u = (static_cast<double>(random() >> 11) + 0.5) * 0x1p-53;
  const double w = static_cast<double>(random() >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * w));
}

PartIdentity TestIdentity() {
  PartIdentity identity;
  for (size_t i = 0; i < Fingerprint::kBytes; ++i) {
    identity.fingerprint.bytes[i] = static_cast<uint8_t>(i + 1);
  }
  for (size_t i = 0; i < BlockKey::kBytes; ++i) {
    identity.key.bytes[i] = static_cast<uint8_t>(0x40 + i);
    identity.content_id.bytes[i] = static_cast<uint8_t>(0x80 + i);
  }
  identity.part = {1, 2};
  return identity;
}

PartShape ShapeOf(const BufferShape& shape, uint32_t tokens, uint32_t heads) {
  return {shape.dtype, shape.layers, heads, shape.k_dim, shape.v_dim, tokens};
}

PartBytes::PartBytes(size_t bytes) : memory_(bytes + 2 * kMargin, kCanary), bytes_(bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kMargin / 2;
  begin_ = memory_.data() + kMargin / 2 + (kPartAlignment - address % kPartAlignment);
}

bool PartBytes::CanaryIntact() const {
  for (const std::byte* p = memory_.data(); p < memory_.data() + memory_.size(); ++p) {
    if ((p < begin_ || p >= begin_ + used_) && *p != kCanary) {
      return false;
    }
  }
  return true;
}

std::vector<std::byte> Encode(const KvBuffer& buffer, const EncodeArguments& arguments,
                              uint32_t* fallbacks) {
  const PartShape shape = ShapeOf(buffer.shape(), arguments.tokens, arguments.heads);
  const auto bytes = PartBytesMax(shape, arguments.options);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  if (!bytes.ok()) {
    return {};
  }
  PartBytes out(*bytes);
  auto encoder = PartEncoder::Create(TestIdentity(), shape,
                                     {&buffer.view(), arguments.first_head, arguments.first_token},
                                     arguments.options, out.out());
  EXPECT_TRUE(encoder.ok()) << encoder.status();
  if (!encoder.ok()) {
    return {};
  }
  while (!encoder->done()) {
    encoder->EncodeLayer();
  }
  out.set_used(encoder->Finish());
  if (fallbacks != nullptr) {
    *fallbacks = encoder->raw_fallback_layers();
  }
  EXPECT_LE(out.part().size(), *bytes);
  // A layer that fell back may leave the bytes of its first try behind the part, inside `out`.
  EXPECT_TRUE(encoder->raw_fallback_layers() > 0 || out.CanaryIntact());
  return {out.part().begin(), out.part().end()};
}

absl::Status Decode(std::span<const std::byte> part, const KvBuffer& buffer, uint32_t first_head,
                    uint32_t first_token, const ProfileSource* profiles) {
  TOKURA_ASSIGN_OR_RETURN(const PartReader reader, PartReader::Open(part, profiles));
  const PartInfo& info = reader.info();
  for (uint32_t layer = 0; layer < info.shape.layers; ++layer) {
    const auto bytes = part.subspan(info.layer_offset[layer],
                                    info.layer_offset[layer + 1] - info.layer_offset[layer]);
    TOKURA_RETURN_IF_ERROR(reader.VerifyLayer(layer, bytes));
    const PageStores stores = layer % 2 == 0 ? PageStores::kCached : PageStores::kStreaming;
    TOKURA_RETURN_IF_ERROR(
        reader.DecodeLayer(layer, bytes, {&buffer.view(), layer, first_head, first_token, stores}));
  }
  return absl::OkStatus();
}

}  // namespace tokura::kernels
