#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/crc32c.h"
#include "common/status_macros.h"
#include "kernels/float_convert.h"
#include "kernels/profile.h"

namespace tokura::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written in place");

constexpr std::array<char, 8> kMagic = {'T', 'O', 'K', 'U', 'R', 'A', 'P', 'F'};
constexpr uint8_t kHasRounding = 1;
constexpr uint32_t kLayersMax = 4096;
constexpr uint32_t kHeadsMax = 4096;
constexpr uint32_t kPositionMax = uint32_t{1} << 30;

struct FileHeader {
  std::array<char, 8> magic;
  uint16_t major;
  uint16_t revision;
  uint32_t groups;
  uint64_t file_bytes;
  uint32_t exemplars;
  uint32_t reserved;
  std::array<char, 64> model;
  std::array<uint8_t, 32> reserved_tail;
};
static_assert(sizeof(FileHeader) == 128);

struct FileGroup {
  uint8_t attention;
  uint8_t rope;
  uint8_t flags;
  uint8_t reserved;
  uint32_t window;
  uint32_t layers;
  uint32_t kv_heads;
  uint32_t queries_per_head;
  uint32_t k_head_dim;
  uint32_t v_head_dim;
  uint32_t rope_first;
  uint32_t rope_dims;
  float softmax_scale;
  uint32_t k_outliers;
  uint32_t v_outliers;
  std::array<uint32_t, 4> reserved_tail;
};
static_assert(sizeof(FileGroup) == 64);

struct FileLayer {
  uint32_t index;
  uint32_t reserved;
  double rope_base;
};
static_assert(sizeof(FileLayer) == 16);

struct FileEnd {
  uint32_t reserved;
  uint32_t crc32c;  // of everything before it
};
static_assert(sizeof(FileEnd) == 8);

absl::Status Bad(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("profile: ", std::string(what)));
}

uint64_t Factors(const ProfileGroup& group) {
  return group.rounding ? uint64_t{group.k_head_dim} * (group.k_head_dim - 1) / 2 : 0;
}

uint64_t HeadBytes(const ProfileGroup& group, uint32_t exemplars) {
  const uint64_t order = group.rounding ? group.k_head_dim : 0;
  const uint64_t words = group.k_head_dim + Factors(group) + exemplars;
  const uint64_t halves =
      group.k_outliers + group.v_outliers + order + uint64_t{exemplars} * group.k_head_dim;
  return (8 + 4 * words + 2 * halves + 7) / 8 * 8;
}

// Sizes are within their limits, so that nothing overflows.
uint64_t GroupBytes(const ProfileGroup& group, uint64_t layers, uint32_t exemplars) {
  const uint64_t layer = sizeof(FileLayer) + uint64_t{8} * group.rope.pairs() +
                         group.kv_heads * HeadBytes(group, exemplars);
  return sizeof(FileGroup) + layers * layer;
}

absl::Status CheckRope(const ProfileGroup& group) {
  const RopeShape& rope = group.rope;
  if (rope.kind > RopeKind::kInterleaved) {
    return Bad("unknown kind of RoPE");
  }
  if (rope.kind == RopeKind::kNone ? rope.dims != 0 || rope.first != 0
                                   : rope.dims == 0 || rope.dims % 2 != 0) {
    return Bad("channels with RoPE are no pairs");
  }
  if (rope.first > group.k_head_dim || rope.dims > group.k_head_dim - rope.first) {
    return Bad("RoPE reaches beyond the head");
  }
  if (group.v_head_dim == 0 && rope.first == 0 && rope.kind != RopeKind::kNone) {
    return Bad("no channels are left for V");
  }
  return absl::OkStatus();
}

// Everything but the layers, whose number is given.
absl::Status CheckGroup(const ProfileGroup& group, uint64_t layers) {
  const auto within = [](uint64_t value, uint64_t max) { return value >= 1 && value <= max; };
  if (group.attention > ProfileAttention::kLatent) {
    return Bad("unknown kind of attention");
  }
  if ((group.attention == ProfileAttention::kSliding) != (group.window > 0) ||
      group.window > kPositionMax) {
    return Bad("window and kind of attention disagree");
  }
  if (!within(layers, kLayersMax) || !within(group.kv_heads, kHeadsMax) ||
      !within(group.queries_per_head, kHeadsMax) || !within(group.k_head_dim, kProfileDimMax) ||
      group.v_head_dim > kProfileDimMax || group.k_outliers > group.k_head_dim ||
      group.v_outliers > group.v_head_dim) {
    return Bad("a dimension is zero or too large");
  }
  if (!std::isfinite(group.softmax_scale) || group.softmax_scale <= 0) {
    return Bad("the softmax scale is not a positive number");
  }
  return CheckRope(group);
}

// `list` ascends below `dim`; with a RoPE shape, holds both channels of a pair or none.
absl::Status CheckOutliers(const std::vector<uint16_t>& list, uint32_t dim, const RopeShape& rope) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] >= dim || (i > 0 && list[i] <= list[i - 1])) {
      return Bad("outlier channels do not ascend within the head");
    }
    if (!std::binary_search(list.begin(), list.end(), rope.Partner(list[i]))) {
      return Bad("an outlier channel without the other one of its RoPE pair");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRounding(const ProfileGroup& group, const ProfileHead& head) {
  if (head.order.size() != (group.rounding ? group.k_head_dim : 0) ||
      head.factors.size() != Factors(group)) {
    return Bad("sizes of the rounding factors");
  }
  std::vector<bool> seen(group.k_head_dim);
  for (const uint16_t channel : head.order) {
    if (channel >= group.k_head_dim || seen[channel]) {
      return Bad("the order of rounding is no permutation");
    }
    seen[channel] = true;
  }
  const auto finite = [](float x) { return std::isfinite(x); };
  return std::all_of(head.factors.begin(), head.factors.end(), finite)
             ? absl::OkStatus()
             : Bad("a rounding factor is not finite");
}

absl::Status CheckHead(const ProfileGroup& group, const ProfileHead& head, uint32_t exemplars) {
  if (head.smooth.size() != group.k_head_dim || head.k_outliers.size() != group.k_outliers ||
      head.v_outliers.size() != group.v_outliers || head.positions.size() != exemplars ||
      head.queries.size() != size_t{exemplars} * group.k_head_dim) {
    return Bad("sizes of a head's arrays");
  }
  for (uint32_t c = 0; c < group.k_head_dim; ++c) {
    if (!std::isfinite(head.smooth[c]) || head.smooth[c] <= 0 ||
        head.smooth[c] != head.smooth[group.rope.Partner(c)]) {
      return Bad("a smoothing factor is not positive, or differs within a RoPE pair");
    }
  }
  TOKURA_RETURN_IF_ERROR(CheckOutliers(head.k_outliers, group.k_head_dim, group.rope));
  TOKURA_RETURN_IF_ERROR(CheckOutliers(head.v_outliers, group.v_head_dim, RopeShape{}));
  TOKURA_RETURN_IF_ERROR(CheckRounding(group, head));
  for (const uint32_t position : head.positions) {
    if (position > kPositionMax) {
      return Bad("the position of a query is implausibly large");
    }
  }
  for (const uint16_t value : head.queries) {
    if (!std::isfinite(HalfToFloat(value))) {
      return Bad("a query is not finite");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckContents(const ProfileGroup& group, uint32_t exemplars) {
  uint64_t next = 0;
  for (const ProfileLayer& layer : group.layers) {
    if (layer.index < next || layer.index > kPositionMax) {
      return Bad("layer indices do not ascend");
    }
    next = uint64_t{layer.index} + 1;
    if (layer.turns.size() != group.rope.pairs() || !std::isfinite(layer.rope_base)) {
      return Bad("RoPE of a layer");
    }
  }
  if (group.heads.size() != group.layers.size() * group.kv_heads) {
    return Bad("layers and heads disagree");
  }
  for (const ProfileHead& head : group.heads) {
    TOKURA_RETURN_IF_ERROR(CheckHead(group, head, exemplars));
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(uint64_t groups, uint64_t exemplars) {
  if (groups < 1 || groups > kProfileGroupsMax) {
    return Bad(absl::StrCat(groups, " layer groups; 1 to ", kProfileGroupsMax, " are possible"));
  }
  if (exemplars < 1 || exemplars > kExemplarsMax) {
    return Bad(absl::StrCat(exemplars, " exemplar queries; 1 to ", kExemplarsMax, " are possible"));
  }
  return absl::OkStatus();
}

template <typename T>
void Append(const std::vector<T>& values, std::string* out) {
  if (!values.empty()) {
    out->append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  }
}

template <typename T>
void AppendStruct(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

FileGroup ToFile(const ProfileGroup& group) {
  FileGroup file{};
  file.attention = static_cast<uint8_t>(group.attention);
  file.rope = static_cast<uint8_t>(group.rope.kind);
  file.flags = group.rounding ? kHasRounding : 0;
  file.window = group.window;
  file.layers = static_cast<uint32_t>(group.layers.size());
  file.kv_heads = group.kv_heads;
  file.queries_per_head = group.queries_per_head;
  file.k_head_dim = group.k_head_dim;
  file.v_head_dim = group.v_head_dim;
  file.rope_first = group.rope.first;
  file.rope_dims = group.rope.dims;
  file.softmax_scale = group.softmax_scale;
  file.k_outliers = group.k_outliers;
  file.v_outliers = group.v_outliers;
  return file;
}

ProfileGroup FromFile(const FileGroup& file) {
  ProfileGroup group;
  group.attention = static_cast<ProfileAttention>(file.attention);
  group.window = file.window;
  group.kv_heads = file.kv_heads;
  group.queries_per_head = file.queries_per_head;
  group.k_head_dim = file.k_head_dim;
  group.v_head_dim = file.v_head_dim;
  group.rope = {static_cast<RopeKind>(file.rope), file.rope_first, file.rope_dims};
  group.softmax_scale = file.softmax_scale;
  group.k_outliers = file.k_outliers;
  group.v_outliers = file.v_outliers;
  group.rounding = (file.flags & kHasRounding) != 0;
  return group;
}

void AppendHead(const ProfileHead& head, std::string* out) {
  AppendStruct(head.sign_seed, out);
  Append(head.smooth, out);
  Append(head.factors, out);
  Append(head.positions, out);
  Append(head.k_outliers, out);
  Append(head.v_outliers, out);
  Append(head.order, out);
  Append(head.queries, out);
  out->resize((out->size() + 7) / 8 * 8);
}

// Walks through bytes whose number has been compared with the sizes in the headers.
class Cursor {
 public:
  explicit Cursor(std::span<const std::byte> bytes) : bytes_(bytes) {}
  void Take(void* to, size_t bytes) {
    TOKURA_CHECK(bytes <= bytes_.size() - at_);
    if (bytes > 0) {
      std::memcpy(to, bytes_.data() + at_, bytes);
    }
    at_ += bytes;
  }
  template <typename T>
  void TakeVector(size_t count, std::vector<T>* out) {
    out->resize(count);
    Take(out->data(), count * sizeof(T));
  }
  void Align() { at_ = (at_ + 7) / 8 * 8; }

 private:
  const std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

ProfileHead TakeHead(const ProfileGroup& group, uint32_t exemplars, Cursor* cursor) {
  ProfileHead head;
  cursor->Take(&head.sign_seed, sizeof(head.sign_seed));
  cursor->TakeVector(group.k_head_dim, &head.smooth);
  cursor->TakeVector(Factors(group), &head.factors);
  cursor->TakeVector(exemplars, &head.positions);
  cursor->TakeVector(group.k_outliers, &head.k_outliers);
  cursor->TakeVector(group.v_outliers, &head.v_outliers);
  cursor->TakeVector(group.rounding ? group.k_head_dim : 0, &head.order);
  cursor->TakeVector(size_t{exemplars} * group.k_head_dim, &head.queries);
  cursor->Align();
  return head;
}

void TakeLayers(uint32_t layers, uint32_t exemplars, ProfileGroup* group, Cursor* cursor) {
  for (uint32_t i = 0; i < layers; ++i) {
    FileLayer file;
    cursor->Take(&file, sizeof(file));
    ProfileLayer& layer = group->layers.emplace_back();
    layer.index = file.index;
    layer.rope_base = file.rope_base;
    cursor->TakeVector(group->rope.pairs(), &layer.turns);
    for (uint32_t head = 0; head < group->kv_heads; ++head) {
      group->heads.push_back(TakeHead(*group, exemplars, cursor));
    }
  }
}

absl::StatusOr<FileHeader> CheckHeader(std::span<const std::byte> bytes) {
  FileHeader header;
  if (bytes.size() < sizeof(header) + sizeof(FileEnd)) {
    return Bad(absl::StrCat("only ", bytes.size(), " bytes"));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kMagic) {
    return Bad("it does not begin with TOKURAPF");
  }
  if (header.major != 0 || header.revision != kProfileRevision) {
    return absl::FailedPreconditionError(absl::StrCat("profile: version ", header.major, ".",
                                                      header.revision, "; this program reads 0.",
                                                      kProfileRevision, ": make it again"));
  }
  if (header.file_bytes != bytes.size() || bytes.size() > kProfileBytesMax) {
    return Bad(absl::StrCat("its header says ", header.file_bytes, " bytes, it has ", bytes.size(),
                            "; at most ", kProfileBytesMax, " are possible"));
  }
  FileEnd end;
  std::memcpy(&end, bytes.data() + bytes.size() - sizeof(end), sizeof(end));
  if (end.crc32c != Crc32c(bytes.first(bytes.size() - 4))) {
    return absl::DataLossError("profile: damaged, the checksum does not match");
  }
  TOKURA_RETURN_IF_ERROR(CheckSizes(header.groups, header.exemplars));
  return header;
}

}  // namespace

absl::Status CheckProfile(const ProfileData& data) {
  TOKURA_RETURN_IF_ERROR(CheckSizes(data.groups.size(), data.exemplars));
  if (data.model.size() > sizeof(FileHeader::model) || data.model.find('\0') != std::string::npos) {
    return Bad("the model's name is too long, or has a zero byte");
  }
  uint64_t bytes = sizeof(FileHeader) + sizeof(FileEnd);
  for (const ProfileGroup& group : data.groups) {
    TOKURA_RETURN_IF_ERROR(CheckGroup(group, group.layers.size()));
    TOKURA_RETURN_IF_ERROR(CheckContents(group, data.exemplars));
    bytes += GroupBytes(group, group.layers.size(), data.exemplars);
  }
  return bytes <= kProfileBytesMax
             ? absl::OkStatus()
             : Bad(absl::StrCat(bytes, " bytes are more than ", kProfileBytesMax));
}

std::string SerializeProfile(const ProfileData& data) {
  TOKURA_CHECK(CheckProfile(data).ok());
  FileHeader header{};
  header.magic = kMagic;
  header.revision = kProfileRevision;
  header.groups = static_cast<uint32_t>(data.groups.size());
  header.exemplars = data.exemplars;
  std::copy(data.model.begin(), data.model.end(), header.model.begin());
  std::string out;
  AppendStruct(header, &out);
  for (const ProfileGroup& group : data.groups) {
    AppendStruct(ToFile(group), &out);
  }
  for (const ProfileGroup& group : data.groups) {
    auto head = group.heads.begin();
    for (const ProfileLayer& layer : group.layers) {
      AppendStruct(FileLayer{layer.index, 0, layer.rope_base}, &out);
      Append(layer.turns, &out);
      for (uint32_t i = 0; i < group.kv_heads; ++i) {
        AppendHead(*head++, &out);
      }
    }
  }
  const uint64_t file_bytes = out.size() + sizeof(FileEnd);
  std::memcpy(out.data() + offsetof(FileHeader, file_bytes), &file_bytes, sizeof(file_bytes));
  out.append(4, '\0');
  const uint32_t crc = Crc32c(std::as_bytes(std::span<const char>(out)));
  AppendStruct(crc, &out);
  return out;
}

absl::StatusOr<ProfileData> ParseProfileData(std::span<const std::byte> bytes) {
  TOKURA_ASSIGN_OR_RETURN(const FileHeader header, CheckHeader(bytes));
  ProfileData data;
  data.model.assign(header.model.begin(),
                    std::find(header.model.begin(), header.model.end(), '\0'));
  data.exemplars = header.exemplars;
  // Groups first: their sizes give the file's, and nothing is allocated before that agrees.
  const uint64_t groups_end = sizeof(FileHeader) + uint64_t{header.groups} * sizeof(FileGroup);
  if (bytes.size() < groups_end + sizeof(FileEnd)) {
    return Bad("truncated");
  }
  Cursor cursor(bytes);
  FileHeader skipped;
  cursor.Take(&skipped, sizeof(skipped));
  std::vector<uint32_t> layers;
  uint64_t total = sizeof(FileHeader) + sizeof(FileEnd);
  for (uint32_t i = 0; i < header.groups; ++i) {
    FileGroup file;
    cursor.Take(&file, sizeof(file));
    data.groups.push_back(FromFile(file));
    TOKURA_RETURN_IF_ERROR(CheckGroup(data.groups.back(), file.layers));
    layers.push_back(file.layers);
    total += GroupBytes(data.groups.back(), file.layers, header.exemplars);
  }
  if (total != bytes.size()) {
    return Bad("sizes of groups and file disagree");
  }
  for (uint32_t i = 0; i < header.groups; ++i) {
    TakeLayers(layers[i], header.exemplars, &data.groups[i], &cursor);
    TOKURA_RETURN_IF_ERROR(CheckContents(data.groups[i], header.exemplars));
  }
  return data;
}

}  // namespace tokura::kernels
