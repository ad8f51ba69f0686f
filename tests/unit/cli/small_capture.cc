#include "tests/unit/cli/small_capture.h"

#include "kernels/float_convert.h"

namespace tokura::cli {
namespace {

// Values between -2 and 2 that repeat only after 4093 elements.
std::vector<uint16_t> Values(size_t count, uint32_t seed) {
  std::vector<uint16_t> out(count);
  for (size_t i = 0; i < count; ++i) {
    const auto step = static_cast<float>((i * 1579 + seed * 977) % 4093);
    out[i] = kernels::FloatToHalf(step / 1023.25F - 2.0F);
  }
  return out;
}

}  // namespace

Capture SmallCapture(const SmallCaptureOptions& options) {
  Capture capture;
  capture.model = "tiny";
  capture.model_layers = options.layers + 1;
  capture.kv_heads = 2;
  capture.q_heads = 4;
  capture.head_dim = 8;
  capture.tokens = options.tokens;
  capture.first_position = options.first_position;
  capture.queries = options.queries;
  capture.first_query_position = options.first_position + options.tokens - options.queries;
  capture.context_tokens = options.first_position + options.tokens - options.queries;
  capture.softmax_scale = 0.25F;
  for (uint32_t i = 0; i < options.layers; ++i) {
    const bool sliding = i % 2 == 1;
    capture.layers.push_back({i, sliding ? CaptureLayer::Kind::kSliding : CaptureLayer::Kind::kFull,
                              sliding ? 5u : 0u, 10000.0F});
  }
  for (uint32_t i = 0; i < options.tokens; ++i) {
    capture.token_ids.push_back(100 + options.first_position + i);
  }
  const size_t kv = size_t{options.layers} * capture.kv_heads * options.tokens * capture.head_dim;
  capture.k = Values(kv, 1 + options.first_position);
  capture.v = Values(kv, 2 + options.first_position);
  capture.q =
      Values(size_t{options.layers} * capture.q_heads * options.queries * capture.head_dim, 3);
  return capture;
}

}  // namespace tokura::cli
