#include "cache-node/arena.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"
#include "common/crc32c.h"
#include "common/memory_limit.h"
#include "common/status_macros.h"

namespace tokura::node {
namespace {

constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr uint64_t kArenaBytesMin = uint64_t{16} << 10;
constexpr char kAdvice[] = "; lower host-bytes or raise the limit";

uint32_t HeaderCrc(ExtentHeader header) {
  header.crc = 0;
  return Crc32c(std::as_bytes(std::span<const ExtentHeader, 1>(&header, 1)));
}

void* Map(uint64_t bytes, int extra_flags) {
  return mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | extra_flags, -1,
              0);
}

// Make the system give all pages now.
absl::Status Populate(std::span<std::byte> pages) {
  while (madvise(pages.data(), pages.size(), MADV_POPULATE_WRITE) != 0) {
    if (errno == EINVAL) {
      break;  // The kernel is older than 5.14: pages come at their first touch.
    }
    if (errno != EINTR && errno != EAGAIN) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot get ", pages.size(), " bytes of memory: ", std::strerror(errno)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(uint64_t bytes, Prefault prefault,
                                                     const std::string& system_root) {
  if (bytes < kArenaBytesMin) {
    return absl::InvalidArgumentError(
        absl::StrCat("an arena of ", bytes, " bytes is under the minimum of ", kArenaBytesMin));
  }
  const uint64_t usable = bytes / kExtentGranule * kExtentGranule;
  const uint64_t mapped = (usable + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  bool huge = true;
  void* base = Map(mapped, MAP_HUGETLB);
  if (base == MAP_FAILED) {
    huge = false;
    base = Map(mapped, 0);
  }
  if (base == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot map an arena of ", mapped, " bytes: ", std::strerror(errno), kAdvice));
  }
  if (!huge) {
    // A hint: without transparent huge pages the arena works all the same.
    static_cast<void>(madvise(base, mapped, MADV_HUGEPAGE));
  }
  // A core file of a node that holds tens of gigabytes helps nobody.
  static_cast<void>(madvise(base, mapped, MADV_DONTDUMP));
  std::unique_ptr<Arena> arena(new Arena({static_cast<std::byte*>(base), usable}, mapped, huge));
  if (prefault == Prefault::kYes) {
    // Above its limit the system would end the process, and nobody would read why. Huge pages are
    // set aside already and count nowhere else.
    const absl::Status fits = huge ? absl::OkStatus() : CheckMemoryLimit(mapped, system_root);
    if (!fits.ok()) {
      return absl::Status(fits.code(), absl::StrCat(fits.message(), kAdvice));
    }
    TOKURA_RETURN_IF_ERROR(Populate({static_cast<std::byte*>(base), mapped}));
  }
  return arena;
}

Arena::~Arena() {
  munmap(bytes_.data(), mapped_bytes_);
}

void Arena::WriteHeader(uint64_t offset, ExtentHeader header) {
  header.crc = HeaderCrc(header);
  std::memcpy(bytes_.data() + offset, &header, sizeof(header));
}

absl::StatusOr<ExtentHeader> Arena::ReadHeader(uint64_t offset) const {
  if (offset % kExtentGranule != 0 || offset + kExtentHeaderBytes > bytes_.size()) {
    return absl::DataLossError(absl::StrCat("no extent can begin at offset ", offset));
  }
  ExtentHeader header;
  std::memcpy(&header, bytes_.data() + offset, sizeof(header));
  if (header.magic != ExtentHeader::kMagic || header.version != ExtentHeader::kVersion ||
      header.crc != HeaderCrc(header)) {
    return absl::DataLossError(absl::StrCat("extent header at offset ", offset, " is damaged"));
  }
  const bool fits = header.extent_bytes >= kExtentHeaderBytes &&
                    header.extent_bytes % kExtentGranule == 0 &&
                    header.extent_bytes <= bytes_.size() - offset &&
                    header.payload_bytes <= header.extent_bytes - kExtentHeaderBytes;
  if (!fits) {
    return absl::DataLossError(
        absl::StrCat("extent header at offset ", offset, " has wrong sizes"));
  }
  return header;
}

absl::StatusOr<std::vector<Extent>> Arena::Walk() const {
  std::vector<Extent> extents;
  for (uint64_t offset = 0; offset < bytes_.size();) {
    absl::StatusOr<ExtentHeader> header = ReadHeader(offset);
    TOKURA_RETURN_IF_ERROR(header.status());
    extents.push_back({offset, *header});
    offset += header->extent_bytes;
  }
  return extents;
}

}  // namespace tokura::node
