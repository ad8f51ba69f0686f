#include "client-lib/src/match_bytes.h"

#include <cstring>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "common/crc32c.h"
#include "tokura/types.h"

namespace tokura {
namespace {

using Random = std::mt19937;

size_t Below(Random& random, size_t bound) {
  return std::uniform_int_distribution<size_t>(0, bound - 1)(random);
}

template <typename T>
T RandomId(Random& random) {
  T id;
  for (uint8_t& byte : id.bytes) {
    byte = static_cast<uint8_t>(Below(random, 256));
  }
  return id;
}

Match RandomMatch(Random& random) {
  Match match;
  match.fingerprint = RandomId<Fingerprint>(random);
  match.block_tokens = static_cast<uint32_t>(Below(random, 1000));
  const size_t holders = 1 + Below(random, 5);
  for (size_t i = 0; i < holders; ++i) {
    match.holders.push_back({std::string(Below(random, 300) % 257, 'n'), random(),
                             Below(random, 2) == 0 ? LeaseToken{} : RandomId<LeaseToken>(random)});
  }
  const char* const codecs[] = {"raw", "kivi4", "int8", ""};
  const bool with_ids = Below(random, 3) != 0;
  const bool with_sizes = Below(random, 3) != 0;
  const bool with_codecs = Below(random, 3) != 0;
  for (size_t run = Below(random, 6); run > 0; --run) {
    const auto count = static_cast<uint32_t>(1 + Below(random, 40));
    match.runs.push_back({static_cast<uint32_t>(Below(random, holders)),
                          static_cast<uint32_t>(match.keys.size()), count});
    if (Below(random, 2) == 0) {
      match.alternates.push_back({static_cast<uint32_t>(Below(random, holders)),
                                  static_cast<uint32_t>(match.keys.size()),
                                  static_cast<uint32_t>(1 + Below(random, count))});
    }
    for (uint32_t i = 0; i < count; ++i) {
      match.keys.push_back(RandomId<BlockKey>(random));
      if (with_ids) {
        match.content_ids.push_back(RandomId<ContentId>(random));
      }
      if (with_sizes) {
        match.stored_bytes.push_back(random());
      }
      if (with_codecs) {
        match.codecs.emplace_back(codecs[Below(random, 4)]);
      }
    }
  }
  return match;
}

bool SameRuns(const std::vector<Match::Run>& a, const std::vector<Match::Run>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Match::Run& x, const Match::Run& y) {
                      return x.holder == y.holder && x.first == y.first && x.count == y.count;
                    });
}

void ExpectSame(const Match& a, const Match& b) {
  EXPECT_EQ(a.fingerprint, b.fingerprint);
  EXPECT_EQ(a.block_tokens, b.block_tokens);
  ASSERT_EQ(a.holders.size(), b.holders.size());
  for (size_t i = 0; i < a.holders.size(); ++i) {
    EXPECT_EQ(a.holders[i].node, b.holders[i].node);
    EXPECT_EQ(a.holders[i].incarnation, b.holders[i].incarnation);
    EXPECT_EQ(a.holders[i].lease, b.holders[i].lease);
  }
  EXPECT_TRUE(SameRuns(a.runs, b.runs));
  EXPECT_TRUE(SameRuns(a.alternates, b.alternates));
  EXPECT_EQ(a.keys, b.keys);
  EXPECT_EQ(a.content_ids, b.content_ids);
  EXPECT_EQ(a.stored_bytes, b.stored_bytes);
  EXPECT_EQ(a.codecs, b.codecs);
}

// Put the right CRC behind changed bytes.
std::string Sealed(std::string bytes) {
  const uint32_t crc = Crc32c(std::as_bytes(std::span(bytes).first(bytes.size() - 4)));
  for (size_t i = 0; i < 4; ++i) {
    bytes[bytes.size() - 4 + i] = static_cast<char>(crc >> (8 * i));
  }
  return bytes;
}

void ExpectRefused(const std::string& bytes, const std::string& reason) {
  const absl::StatusOr<Match> parsed = Match::Parse(bytes);
  EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(parsed.status().message().find(reason), std::string::npos) << parsed.status();
}

TEST(MatchBytes, ComesBackAsItWas) {
  Random random(1);
  for (int i = 0; i < 500; ++i) {
    const Match match = RandomMatch(random);
    const std::string bytes = match.Serialize();
    const absl::StatusOr<Match> parsed = Match::Parse(bytes);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    ExpectSame(match, *parsed);
    EXPECT_EQ(parsed->Serialize(), bytes);
  }
}

TEST(MatchBytes, EveryFlippedByteAndEveryCutIsRefused) {
  Random random(2);
  Match match = RandomMatch(random);
  while (match.blocks() == 0) {
    match = RandomMatch(random);
  }
  const std::string bytes = match.Serialize();
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 << Below(random, 8)));
    EXPECT_FALSE(Match::Parse(changed).ok()) << "byte " << at;
    EXPECT_FALSE(Match::Parse(bytes.substr(0, at)).ok()) << "cut at " << at;
  }
  EXPECT_FALSE(Match::Parse(bytes + '\0').ok());
}

TEST(MatchBytes, BytesBehindARightCrcAreParsedSafelyAndWhatIsTakenIsConsistent) {
  Random random(3);
  size_t taken = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = RandomMatch(random).Serialize();
    for (size_t changes = 1 + Below(random, 3); changes > 0; --changes) {
      bytes[8 + Below(random, bytes.size() - 8)] = static_cast<char>(random());
    }
    bytes = Sealed(bytes);
    const absl::StatusOr<Match> parsed = Match::Parse(bytes);
    if (!parsed.ok()) {
      EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument);
      continue;
    }
    ++taken;
    EXPECT_EQ(parsed->Serialize(), bytes);
    for (size_t block = 0; block < parsed->blocks(); ++block) {
      EXPECT_NE(parsed->HolderOf(block), nullptr);
    }
  }
  EXPECT_GT(taken, 0u);
}

TEST(MatchBytes, SaysWhatIsWrong) {
  Random random(4);
  Match match = RandomMatch(random);
  while (match.runs.size() < 2) {
    match = RandomMatch(random);
  }
  const std::string bytes = match.Serialize();
  ExpectRefused("", "these are none");
  ExpectRefused("hello, this is some text", "these are none");
  std::string newer = bytes;
  newer[4] = 2;
  ExpectRefused(newer, "version 2, this software reads 1");
  std::string torn = bytes;
  torn[20] = static_cast<char>(torn[20] ^ 1);
  ExpectRefused(torn, "wrong CRC");
  std::string flagged = bytes;
  flagged[7] = 1;
  ExpectRefused(Sealed(flagged), "flags");
  Match empty;
  std::string empty_flagged = empty.Serialize();
  EXPECT_TRUE(Match::Parse(empty_flagged).ok());
  empty_flagged[6] = 1;
  ExpectRefused(Sealed(empty_flagged), "flags 1 of an empty match");
  Match gap = match;
  gap.runs[1].first += 1;
  ExpectRefused(gap.Serialize(), "runs do not follow one another");
  Match shorter = match;
  shorter.runs.pop_back();
  shorter.alternates.clear();
  ExpectRefused(shorter.Serialize(), "runs cover");
  Match nobody = match;
  nobody.runs[0].holder = 77;
  ExpectRefused(nobody.Serialize(), "runs do not follow one another");
  Match outside = match;
  outside.alternates = {{0, 0, static_cast<uint32_t>(match.blocks() + 1)}};
  ExpectRefused(outside.Serialize(), "an alternate is not part of the match");
  Match long_name = match;
  long_name.holders[0].node = std::string(kMatchNameBytesMax + 1, 'x');
  ExpectRefused(long_name.Serialize(), "a name of 257 bytes");
}

TEST(MatchBytes, ListsWithoutOneEntryPerKeyAreAbsent) {
  Random random(5);
  Match match = RandomMatch(random);
  while (match.blocks() < 2) {
    match = RandomMatch(random);
  }
  match.content_ids.assign(match.blocks() - 1, {});
  match.codecs.assign(match.blocks() + 1, "raw");
  const absl::StatusOr<Match> parsed = Match::Parse(match.Serialize());
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_TRUE(parsed->content_ids.empty());
  EXPECT_TRUE(parsed->codecs.empty());
  EXPECT_EQ(parsed->keys, match.keys);
}

}  // namespace
}  // namespace tokura
