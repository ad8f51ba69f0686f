#include "proto/block_key.h"

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "proto/namespace.h"

namespace tokura {
namespace {

using ::testing::ElementsAreArray;

Fingerprint Space(uint8_t fill = 7) {
  Fingerprint fingerprint;
  fingerprint.bytes.fill(fill);
  return fingerprint;
}

std::vector<uint32_t> Tokens(size_t count, uint32_t first = 100) {
  std::vector<uint32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = first + static_cast<uint32_t>(i * 7 % 50'000);
  }
  return tokens;
}

std::vector<BlockKey> Keys(const TokenChain& chain) {
  return {chain.keys().begin(), chain.keys().end()};
}

std::vector<BlockKey> OneShot(std::span<const uint32_t> tokens, uint32_t block_tokens) {
  std::vector<BlockKey> keys;
  BlockKey parent;
  while (tokens.size() >= block_tokens) {
    parent = ComputeBlockKey(Space(), parent, tokens.first(block_tokens));
    keys.push_back(parent);
    tokens = tokens.subspan(block_tokens);
  }
  return keys;
}

TEST(BlockKeyTest, EveryInputChangesTheKey) {
  const std::vector<uint32_t> tokens = {1, 2, 3, 4};
  const std::vector<uint32_t> reordered = {2, 1, 3, 4};
  const std::vector<uint32_t> shorter = {1, 2, 3};
  const std::vector<uint32_t> longer = {1, 2, 3, 4, 0};
  BlockKey parent;
  parent.bytes[15] = 1;
  const std::vector<BlockKey> keys = {
      ComputeBlockKey(Space(), {}, tokens),
      ComputeBlockKey(Space(8), {}, tokens),
      ComputeBlockKey(Space(), parent, tokens),
      ComputeBlockKey(Space(), {}, reordered),
      ComputeBlockKey(Space(), {}, shorter),
      ComputeBlockKey(Space(), {}, longer),
      ComputeBlockKey(Space(), {}, {}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "a"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{2, "a"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "b"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "a", 1}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "a"}, {1, "b"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "b"}, {1, "a"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, "ab"}}),
      ComputeBlockKey(Space(), {}, tokens, std::vector<KeyExtra>{{1, ""}}),
  };
  const std::set<BlockKey> distinct(keys.begin(), keys.end());
  EXPECT_EQ(distinct.size(), keys.size());
}

TEST(BlockKeyTest, ExtrasCannotStandForTokensNorTokensForExtras) {
  // The bytes after the tokens of one block equal the tail of the other's token list.
  const std::vector<uint32_t> without = {5, 6, 1, 0};
  const std::vector<uint32_t> with = {5, 6};
  EXPECT_NE(ComputeBlockKey(Space(), {}, without),
            ComputeBlockKey(Space(), {}, with, std::vector<KeyExtra>{{0, std::string(4, '\0')}}));
}

TEST(BlockKeyTest, EngineKeysDependOnNamespaceAndHashAndNeverMeetTokenKeys) {
  const std::string hash = "0123456789abcdef";
  const auto bytes = std::as_bytes(std::span<const char>(hash.data(), hash.size()));
  const std::set<BlockKey> distinct = {
      EngineBlockKey(Space(1), bytes), EngineBlockKey(Space(2), bytes),
      EngineBlockKey(Space(1), bytes.first(15)), EngineBlockKey(Space(1), {}),
      ComputeBlockKey(Space(1), {}, {})};
  EXPECT_EQ(distinct.size(), 5u);
  EXPECT_EQ(EngineBlockKey(Space(1), bytes), EngineBlockKey(Space(1), bytes));
}

TEST(TokenChainTest, EqualsOneShotHowEverTextIsCut) {
  const std::vector<uint32_t> tokens = Tokens(133);
  for (const uint32_t block_tokens : {1u, 2u, 16u, 64u, 133u, 134u}) {
    const std::vector<BlockKey> expected = OneShot(tokens, block_tokens);
    for (const size_t step : {1u, 3u, 16u, 65u, 133u}) {
      TokenChain chain(Space(), block_tokens);
      for (size_t i = 0; i < tokens.size(); i += step) {
        chain.Append(std::span(tokens).subspan(i, std::min(step, tokens.size() - i)));
      }
      EXPECT_THAT(Keys(chain), ElementsAreArray(expected)) << block_tokens << " " << step;
      EXPECT_EQ(chain.tokens(), tokens.size());
      EXPECT_EQ(chain.blocks(), tokens.size() / block_tokens);
    }
  }
}

TEST(TokenChainTest, OpenTailHasNoKeyUntilItsBlockIsComplete) {
  TokenChain chain(Space(), 4);
  chain.Append(Tokens(3));
  EXPECT_EQ(chain.blocks(), 0u);
  EXPECT_EQ(chain.tokens(), 3u);
  chain.Append({});
  EXPECT_EQ(chain.blocks(), 0u);
  chain.Append(Tokens(1));
  EXPECT_EQ(chain.blocks(), 1u);
  EXPECT_TRUE(chain.parent(0).empty());
}

TEST(TokenChainTest, AKeyNamesTheWholePrefix) {
  std::vector<uint32_t> tokens = Tokens(64);
  TokenChain chain(Space(), 16);
  chain.Append(tokens);
  tokens[0] ^= 1;
  TokenChain other(Space(), 16);
  other.Append(tokens);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NE(chain.keys()[i], other.keys()[i]);
    EXPECT_EQ(chain.parent(i), i == 0 ? BlockKey{} : chain.keys()[i - 1]);
  }
}

TEST(TokenChainTest, ASequenceWithAHoleSharesNothingAfterIt) {
  const std::vector<uint32_t> tokens = Tokens(64);
  TokenChain whole(Space(), 16);
  whole.Append(tokens);
  TokenChain holed(Space(), 16);
  holed.Append(std::span(tokens).first(16));
  holed.Append(std::span(tokens).subspan(32));
  ASSERT_EQ(holed.blocks(), 3u);
  EXPECT_EQ(holed.keys()[0], whole.keys()[0]);
  for (const BlockKey& key : holed.keys().subspan(1)) {
    EXPECT_THAT(Keys(whole), ::testing::Not(::testing::Contains(key)));
  }
}

TEST(TokenChainTest, RepeatedTokensGiveDistinctKeys) {
  TokenChain chain(Space(), 4);
  chain.Append(std::vector<uint32_t>(400, 11));
  const std::set<BlockKey> distinct(chain.keys().begin(), chain.keys().end());
  EXPECT_EQ(distinct.size(), 100u);
}

TEST(TokenChainTest, ExtrasEnterAtTheBlockOfTheFirstTokenAndAreInherited) {
  const std::vector<uint32_t> text = Tokens(6);
  const std::vector<uint32_t> placeholders(9, 99);
  TokenChain plain(Space(), 4);
  plain.Append(text);
  plain.Append(placeholders);
  TokenChain image(Space(), 4);
  image.Append(text);
  image.Append(placeholders, std::vector<KeyExtra>{{1, "image hash"}});

  // The item begins at token 6: block 1, offset 2. Block 0 is shared; everything later differs.
  ASSERT_EQ(image.blocks(), 3u);
  EXPECT_EQ(image.keys()[0], plain.keys()[0]);
  EXPECT_EQ(image.keys()[1], ComputeBlockKey(Space(), image.keys()[0],
                                             std::vector<uint32_t>{text[4], text[5], 99, 99},
                                             std::vector<KeyExtra>{{1, "image hash", 2}}));
  EXPECT_EQ(image.keys()[2],
            ComputeBlockKey(Space(), image.keys()[1], std::vector<uint32_t>(4, 99)));
  EXPECT_NE(image.keys()[1], plain.keys()[1]);
  EXPECT_NE(image.keys()[2], plain.keys()[2]);
}

TEST(TokenChainTest, TheSameItemsAtOtherPlacesOfABlockGiveOtherKeys) {
  const std::vector<uint32_t> two(2, 99);
  const std::vector<uint32_t> three(3, 99);
  TokenChain first(Space(), 5);
  first.Append(two, std::vector<KeyExtra>{{1, "a"}});
  first.Append(three, std::vector<KeyExtra>{{1, "b"}});
  TokenChain second(Space(), 5);
  second.Append(three, std::vector<KeyExtra>{{1, "a"}});
  second.Append(two, std::vector<KeyExtra>{{1, "b"}});
  EXPECT_NE(first.keys()[0], second.keys()[0]);
}

TEST(TokenChainTest, AnItemThatBeginsAtABlockBoundaryBelongsToTheNewBlock) {
  TokenChain chain(Space(), 4);
  chain.Append(Tokens(4));
  const BlockKey first = chain.keys()[0];
  chain.Append(std::vector<uint32_t>(4, 9), std::vector<KeyExtra>{{1, "x"}});
  EXPECT_EQ(chain.keys()[0], first);
  EXPECT_EQ(chain.keys()[1], ComputeBlockKey(Space(), first, std::vector<uint32_t>(4, 9),
                                             std::vector<KeyExtra>{{1, "x"}}));
}

TEST(TokenChainTest, ExtrasWithoutTokensWaitForTheNextToken) {
  TokenChain waiting(Space(), 4);
  waiting.Append({}, std::vector<KeyExtra>{{2, "e"}});
  waiting.Append(Tokens(4));
  TokenChain direct(Space(), 4);
  direct.Append(Tokens(4), std::vector<KeyExtra>{{2, "e"}});
  EXPECT_EQ(Keys(waiting), Keys(direct));
}

TEST(TokenChainTest, AForkSharesThePrefixAndThenParts) {
  TokenChain chain(Space(), 4);
  chain.Append(Tokens(10), std::vector<KeyExtra>{{1, "x"}});
  TokenChain fork = chain;
  chain.Append(Tokens(6, 1));
  fork.Append(Tokens(6, 2));
  EXPECT_EQ(chain.keys()[1], fork.keys()[1]);
  EXPECT_NE(chain.keys()[2], fork.keys()[2]);
  EXPECT_NE(chain.keys()[3], fork.keys()[3]);
}

TEST(TokenChainTest, FromKeysKeepsWhatItIsGiven) {
  const std::vector<BlockKey> keys = OneShot(Tokens(64), 16);
  const TokenChain chain = TokenChain::FromKeys(Space(), 16, keys);
  EXPECT_EQ(Keys(chain), keys);
  EXPECT_EQ(chain.tokens(), 64u);
  EXPECT_EQ(chain.parent(3), keys[2]);
}

TEST(TokenChainDeathTest, AppendingToGivenKeysIsABrokenInvariant) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  TokenChain chain = TokenChain::FromKeys(Space(), 16, OneShot(Tokens(16), 16));
  EXPECT_DEATH(chain.Append(Tokens(1)), "broken invariant");
}

// What a second process prints for KeysAreTheSameInAnotherProcess.
std::string KeysOfThisProcess() {
  NamespaceSpec spec;
  spec.model = "m";
  spec.groups = {{AttentionKind::kFull, 0, {0, 1}, 2, 64, 64}};
  TokenChain chain(ComputeFingerprint(spec), 16);
  chain.Append(Tokens(48), std::vector<KeyExtra>{{1, "x"}});
  std::string text;
  for (const BlockKey& key : chain.keys()) {
    text += ToHex(key.span());
  }
  return text;
}

TEST(KeysChildTest, DISABLED_PrintsItsKeys) {
  std::printf("KEYS=%s\n", KeysOfThisProcess().c_str());
}

TEST(TokenChainTest, KeysAreTheSameInAnotherProcessWhateverItsEnvironment) {
  for (const char* environment :
       {"", "PYTHONHASHSEED=1 LC_ALL=tr_TR.UTF-8 LANG=tr_TR TZ=Asia/Tokyo TOKURA_SALT=x",
        "PYTHONHASHSEED=2 LC_ALL=C TOKURA_TENANT=other OPENSSL_CONF=/dev/null HOME=/"}) {
    const std::string command =
        "cd / && env -i " + std::string(environment) + " " +
        std::filesystem::read_symlink("/proc/self/exe").string() +
        " --gtest_also_run_disabled_tests --gtest_filter=KeysChildTest.* 2>&1";
    FILE* child = popen(command.c_str(), "r");
    ASSERT_NE(child, nullptr);
    std::string output;
    char buffer[4096];
    while (std::fgets(buffer, sizeof(buffer), child) != nullptr) {
      output += buffer;
    }
    EXPECT_EQ(pclose(child), 0) << output;
    EXPECT_THAT(output, ::testing::HasSubstr("KEYS=" + KeysOfThisProcess() + "\n"));
  }
}

}  // namespace
}  // namespace tokura
