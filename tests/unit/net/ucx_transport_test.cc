#include "common/net/ucx_transport.h"

#include <numeric>

#include "gtest/gtest.h"
#include "ucx_test_util.h"

namespace tokura::net {
namespace {

TEST(UcxTransport, MessagesArriveInOrderWithTheirBytes) {
  UcxPair pair;
  std::vector<std::string> expected;
  // Sizes on both sides of every protocol switch, up to the limits.
  const size_t sizes[] = {0, 1, 100, 8000, 9000, 65000, 70000, 300000, kMessageBytesMax};
  for (int round = 0; round < 4; ++round) {
    for (const size_t size : sizes) {
      std::string body(size, '\0');
      Fill(std::as_writable_bytes(std::span(body.data(), body.size())), expected.size());
      const std::string header(expected.size() % (kHeaderBytesMax + 1), 'h');
      absl::Status sent = pair.at_client.connection->SendMessage(AsBytes(header), AsBytes(body));
      ASSERT_TRUE(sent.ok()) << sent;
      expected.push_back("message " + header + "|" + body);
    }
  }
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.log.size() == expected.size(); }));
  EXPECT_TRUE(pair.at_server.log == expected);
}

TEST(UcxTransport, OnConnectedComesFirst) {
  UcxPair pair;
  ASSERT_TRUE(pair.at_server.connection->SendMessage(AsBytes("x"), {}).ok());
  ASSERT_TRUE(pair.Until([&] { return pair.at_client.log.size() == 2; }));
  EXPECT_EQ(pair.at_client.log[0], "connected");
}

class UcxPayloadSize : public testing::TestWithParam<size_t> {};

TEST_P(UcxPayloadSize, ArrivesByteExactBothWays) {
  const size_t size = GetParam();
  UcxPair pair;
  Buffer source(*pair.client, size);
  Buffer target(*pair.server, size + 1);
  Fill(source.bytes(), size);
  target.bytes()[size] = std::byte{0x5a};
  std::optional<absl::Status> received;
  std::optional<absl::Status> sent;
  pair.at_server.on_payload = [&](std::span<const std::byte> header, IncomingPayload payload) {
    EXPECT_EQ(AsText(header), "head");
    EXPECT_EQ(payload.size(), size);
    payload.Receive(target.span(), [&](absl::Status status) { received = status; });
    EXPECT_FALSE(received.has_value()) << "completed inline";
  };
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload(AsBytes("head"), {&piece, 1},
                                         [&](absl::Status status) { sent = status; });
  EXPECT_FALSE(sent.has_value()) << "completed inline";
  ASSERT_TRUE(pair.Until([&] { return sent && received; }));
  EXPECT_TRUE(sent->ok()) << *sent;
  EXPECT_TRUE(received->ok()) << *received;
  EXPECT_TRUE(std::equal(source.bytes().begin(), source.bytes().end(), target.bytes().begin()));
  EXPECT_EQ(target.bytes()[size], std::byte{0x5a}) << "wrote past the end";
}

INSTANTIATE_TEST_SUITE_P(Sizes, UcxPayloadSize,
                         testing::Values(1, 7, 64, 4096, 8191, 65536, 65537, 1 << 20, (4 << 20) + 3,
                                         16 << 20));

TEST(UcxTransport, TellsWhatHasArrivedAndLeavesItAlone) {
  UcxPair pair;
  const size_t size = 16 * kChunkBytesMin + 3;
  Buffer source(*pair.client, size);
  Buffer target(*pair.server, size);
  Fill(source.bytes(), 11);
  std::vector<size_t> counts;
  bool in_receive = false;
  std::optional<absl::Status> received;
  pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
    in_receive = true;
    payload.Receive(
        target.span(),
        [&](size_t bytes) {
          EXPECT_FALSE(in_receive) << "told inline";
          EXPECT_FALSE(received.has_value()) << "told after Done";
          EXPECT_TRUE(std::equal(source.bytes().begin(),
                                 source.bytes().begin() + static_cast<ptrdiff_t>(bytes),
                                 target.bytes().begin()));
          counts.push_back(bytes);
        },
        [&](absl::Status status) { received = status; });
    in_receive = false;
  };
  const RegisteredSpan piece = source.span();
  std::optional<absl::Status> sent;
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return sent && received; }));
  EXPECT_TRUE(sent->ok() && received->ok());
  EXPECT_TRUE(source.bytes() == target.bytes());
  ASSERT_FALSE(counts.empty());
  EXPECT_TRUE(std::is_sorted(counts.begin(), counts.end()));
  EXPECT_EQ(std::adjacent_find(counts.begin(), counts.end()), counts.end());
  EXPECT_LT(counts.back(), size);
}

TEST(UcxTransport, GathersPiecesAcrossChunks) {
  UcxPair pair;
  const size_t sizes[] = {kChunkBytesMin / 3, 3 * kChunkBytesMin, 5, kChunkBytesMin + 1};
  Buffer source(*pair.client, 8 * kChunkBytesMin);
  Fill(source.bytes(), 12);
  std::vector<RegisteredSpan> pieces;
  std::vector<std::byte> expected;
  size_t at = 1;
  for (const size_t size : sizes) {
    pieces.push_back(source.span().Sub(at, size));
    expected.insert(expected.end(), pieces.back().data, pieces.back().data + size);
    at += size + 100;
  }
  Buffer target(*pair.server, expected.size());
  std::optional<absl::Status> received;
  pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
    payload.Receive(target.span(), [&](absl::Status status) { received = status; });
  };
  std::optional<absl::Status> sent;
  pair.at_client.connection->SendPayload({}, pieces, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return sent && received; }));
  EXPECT_TRUE(sent->ok() && received->ok());
  EXPECT_TRUE(expected == target.bytes());
}

TEST(UcxTransport, RejectedChunksLeaveTheNextPayloadAlone) {
  // At once and after keeping: a payload of several chunks is refused as a whole.
  UcxPair pair;
  const size_t size = 5 * kChunkBytesMin;
  Buffer source(*pair.client, size);
  Buffer target(*pair.server, size);
  Fill(source.bytes(), 13);
  std::optional<absl::Status> received;
  int offers = 0;
  IncomingPayload kept;
  pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
    switch (offers++) {
      case 0:
        payload.Reject();
        break;
      case 1:
        kept = std::move(payload);
        break;
      default:
        payload.Receive(target.span(), [&](absl::Status status) { received = status; });
    }
  };
  std::vector<std::optional<absl::Status>> sent(3);
  const RegisteredSpan piece = source.span();
  for (auto& status : sent) {
    pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { status = s; });
  }
  ASSERT_TRUE(pair.Until([&] { return received.has_value(); }));
  kept.Reject();
  ASSERT_TRUE(pair.Until([&] { return sent[0] && sent[1] && sent[2]; }));
  EXPECT_TRUE(absl::IsResourceExhausted(*sent[0])) << *sent[0];
  EXPECT_TRUE(absl::IsResourceExhausted(*sent[1])) << *sent[1];
  EXPECT_TRUE(sent[2]->ok() && received->ok());
  EXPECT_TRUE(source.bytes() == target.bytes());
  EXPECT_FALSE(pair.at_client.closed || pair.at_server.closed);
}

TEST(UcxTransport, GathersPieces) {
  UcxPair pair;
  for (const size_t count : {size_t{2}, size_t{7}, kPayloadPiecesMax}) {
    const size_t piece_bytes = 10007;
    Buffer source(*pair.client, count * piece_bytes * 2);
    Buffer target(*pair.server, count * piece_bytes);
    Fill(source.bytes(), count);
    std::vector<RegisteredSpan> pieces;
    std::vector<std::byte> expected;
    for (size_t i = 0; i < count; ++i) {
      pieces.push_back(source.span().Sub((count - 1 - i) * piece_bytes * 2, piece_bytes));
      const std::span<std::byte> bytes = pieces.back().bytes();
      expected.insert(expected.end(), bytes.begin(), bytes.end());
    }
    std::optional<absl::Status> received;
    std::optional<absl::Status> sent;
    pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
      EXPECT_EQ(payload.size(), expected.size());
      payload.Receive(target.span(), [&](absl::Status status) { received = status; });
    };
    pair.at_client.connection->SendPayload({}, pieces, [&](absl::Status status) { sent = status; });
    pieces.clear();
    ASSERT_TRUE(pair.Until([&] { return sent && received; }));
    EXPECT_TRUE(sent->ok() && received->ok());
    EXPECT_TRUE(expected == target.bytes()) << count;
  }
}

TEST(UcxTransport, ManyPayloadsInFlightBothWays) {
  UcxPair pair;
  constexpr size_t kCount = 128;
  constexpr size_t kSize = 200000;
  Buffer client_out(*pair.client, kCount * kSize);
  Buffer client_in(*pair.client, kCount * kSize);
  Buffer server_out(*pair.server, kCount * kSize);
  Buffer server_in(*pair.server, kCount * kSize);
  Fill(client_out.bytes(), 1);
  Fill(server_out.bytes(), 2);
  size_t done = 0;
  const auto count = [&](absl::Status status) {
    EXPECT_TRUE(status.ok()) << status;
    ++done;
  };
  const auto receive_into = [&](Buffer& into) {
    return [&](std::span<const std::byte> header, IncomingPayload payload) {
      const size_t index = std::stoul(AsText(header));
      payload.Receive(into.span().Sub(index * kSize, kSize), count);
    };
  };
  pair.at_client.on_payload = receive_into(client_in);
  pair.at_server.on_payload = receive_into(server_in);
  for (size_t i = 0; i < kCount; ++i) {
    const RegisteredSpan up = client_out.span().Sub(i * kSize, kSize);
    const RegisteredSpan down = server_out.span().Sub(i * kSize, kSize);
    const std::string header = std::to_string(i);
    pair.at_client.connection->SendPayload(AsBytes(header), {&up, 1}, count);
    pair.at_server.connection->SendPayload(AsBytes(header), {&down, 1}, count);
  }
  ASSERT_TRUE(pair.Until([&] { return done == 4 * kCount; }));
  EXPECT_TRUE(client_out.bytes() == server_in.bytes());
  EXPECT_TRUE(server_out.bytes() == client_in.bytes());
}

TEST(UcxTransport, OffersAndMessagesKeepTheirOrder) {
  UcxPair pair;
  Buffer source(*pair.client, 100000);
  std::vector<std::string> expected;
  int sent = 0;
  for (int i = 0; i < 20; ++i) {
    const std::string number = std::to_string(i);
    const std::string body(i % 3 == 0 ? 500000 : 10, 'b');
    ASSERT_TRUE(pair.at_client.connection->SendMessage(AsBytes(number), AsBytes(body)).ok());
    expected.push_back("message " + number + "|" + body);
    const RegisteredSpan piece = source.span();
    pair.at_client.connection->SendPayload(AsBytes(number), {&piece, 1},
                                           [&](absl::Status) { ++sent; });
    expected.push_back("payload " + number + "|100000");
  }
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.log.size() == expected.size(); }));
  EXPECT_TRUE(pair.at_server.log == expected);
  pair.at_server.kept.clear();
  ASSERT_TRUE(pair.Until([&] { return sent == 20; }));
}

TEST(UcxTransport, RejectAtOnceReachesTheSender) {
  UcxPair pair;
  Buffer source(*pair.client, 1 << 20);
  pair.at_server.on_payload = [](std::span<const std::byte>, IncomingPayload payload) {
    payload.Reject();
  };
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return sent.has_value(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(*sent)) << *sent;
  EXPECT_FALSE(pair.at_client.closed || pair.at_server.closed);
}

TEST(UcxTransport, DroppingAnOfferRejectsIt) {
  UcxPair pair;
  Buffer source(*pair.client, 1 << 20);
  pair.at_server.on_payload = [](std::span<const std::byte>, IncomingPayload) {};
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return sent.has_value(); }));
  EXPECT_TRUE(absl::IsResourceExhausted(*sent)) << *sent;
}

TEST(UcxTransport, RejectAfterKeepingReachesTheSender) {
  UcxPair pair;
  Buffer source(*pair.client, 1 << 20);
  Buffer target(*pair.server, 1 << 20);
  Fill(source.bytes(), 3);
  std::vector<std::optional<absl::Status>> sent(9);
  const RegisteredSpan piece = source.span();
  for (auto& status : sent) {
    pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { status = s; });
  }
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.kept.size() == sent.size(); }));
  // Every third is taken after all.
  int received = 0;
  for (size_t i = 0; i < sent.size(); ++i) {
    if (i % 3 == 0) {
      pair.at_server.kept[i].Receive(target.span(), [&](absl::Status s) {
        EXPECT_TRUE(s.ok());
        ++received;
      });
    } else {
      pair.at_server.kept[i].Reject();
    }
  }
  ASSERT_TRUE(pair.Until([&] {
    return received == 3 && std::all_of(sent.begin(), sent.end(), [](auto& s) { return bool(s); });
  }));
  for (size_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(sent[i]->code(),
              i % 3 == 0 ? absl::StatusCode::kOk : absl::StatusCode::kResourceExhausted)
        << i << *sent[i];
  }
  EXPECT_TRUE(source.bytes() == target.bytes());
  EXPECT_FALSE(pair.at_client.closed || pair.at_server.closed);
}

TEST(UcxTransport, KeptOfferOfAClosedConnectionIsUnavailable) {
  UcxPair pair;
  Buffer source(*pair.client, 1 << 20);
  Buffer target(*pair.server, 1 << 20);
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.kept.size() == 1; }));
  pair.at_client.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.closed && pair.at_client.closed; }));
  ASSERT_TRUE(sent.has_value()) << "Done after OnClosed";
  EXPECT_TRUE(absl::IsCancelled(*sent)) << *sent;
  std::optional<absl::Status> received;
  pair.at_server.kept[0].Receive(target.span(), [&](absl::Status s) { received = s; });
  EXPECT_FALSE(received.has_value()) << "completed inline";
  ASSERT_TRUE(pair.Until([&] { return received.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*received)) << *received;
}

TEST(UcxTransport, ReceiverThatAbortsWithAKeptOfferDoesNotTellSuccess) {
  UcxPair pair;
  Buffer source(*pair.client, 1 << 20);
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.kept.size() == 1; }));
  pair.at_server.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed.has_value(); }));
  ASSERT_TRUE(sent.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*sent)) << *sent;
}

TEST(UcxTransport, AbortInTheMiddleCompletesEverything) {
  for (const bool client_aborts : {true, false}) {
    UcxPair pair;
    constexpr size_t kCount = 16;
    Buffer source(*pair.client, 8 << 20);
    Buffer target(*pair.server, 8 << 20);
    std::vector<std::string> order;
    pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
      payload.Receive(target.span(), [&](absl::Status) {
        EXPECT_FALSE(pair.at_server.closed);
        order.push_back("received");
      });
    };
    const RegisteredSpan piece = source.span();
    for (size_t i = 0; i < kCount; ++i) {
      pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status) {
        EXPECT_FALSE(pair.at_client.closed);
        order.push_back("sent");
      });
    }
    ASSERT_TRUE(pair.Until([&] { return pair.at_server.payloads >= 2; }));
    (client_aborts ? pair.at_client : pair.at_server).connection->Close(CloseMode::kAbort);
    ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed && pair.at_server.closed; }));
    EXPECT_EQ(std::count(order.begin(), order.end(), "sent"), kCount);
    EXPECT_EQ(std::count(order.begin(), order.end(), "received"), pair.at_server.payloads);
    const Recorder& aborting = client_aborts ? pair.at_client : pair.at_server;
    const Recorder& other = client_aborts ? pair.at_server : pair.at_client;
    EXPECT_TRUE(absl::IsCancelled(*aborting.closed)) << *aborting.closed;
    EXPECT_TRUE(absl::IsUnavailable(*other.closed)) << *other.closed;
  }
}

TEST(UcxTransport, SocketsAreClosedBeforeOnClosed) {
  UcxPair pair;
  pair.at_client.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(Drive({pair.client.get()}, [&] { return pair.at_client.closed.has_value(); }));
  // The client does nothing any more, and yet the server sees the end.
  ASSERT_TRUE(Drive({pair.server.get()}, [&] { return pair.at_server.closed.has_value(); }));
}

TEST(UcxTransport, FlushDeliversWhatWasSent) {
  UcxTransport::Options options;
  options.close_timeout = std::chrono::seconds(20);  // the machine may be busy with other things
  for (int round = 0; round < 20; ++round) {
    UcxPair pair(options);
    Buffer source(*pair.client, 3 << 20);
    Buffer target(*pair.server, 3 << 20);
    Fill(source.bytes(), round);
    std::optional<absl::Status> received;
    pair.at_server.on_payload = [&](std::span<const std::byte>, IncomingPayload payload) {
      payload.Receive(target.span(), [&](absl::Status s) { received = s; });
    };
    const std::string big(kMessageBytesMax, 'm');
    std::optional<absl::Status> sent;
    const RegisteredSpan piece = source.span();
    pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
    ASSERT_TRUE(pair.at_client.connection->SendMessage({}, AsBytes(big)).ok());
    pair.at_client.connection->Close(CloseMode::kFlush);
    EXPECT_FALSE(pair.at_client.connection->SendMessage({}, {}).ok());
    ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed && pair.at_server.closed; }));
    EXPECT_TRUE(pair.at_client.closed->ok()) << *pair.at_client.closed;
    EXPECT_TRUE(absl::IsUnavailable(*pair.at_server.closed)) << *pair.at_server.closed;
    EXPECT_TRUE(sent && sent->ok() && received && received->ok());
    EXPECT_TRUE(source.bytes() == target.bytes());
    EXPECT_EQ(pair.at_server.messages, 1);
  }
}

TEST(UcxTransport, BothSidesMayFlushAtOnce) {
  UcxPair pair;
  pair.at_client.connection->Close(CloseMode::kFlush);
  pair.at_server.connection->Close(CloseMode::kFlush);
  ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed && pair.at_server.closed; }));
  EXPECT_TRUE(pair.at_client.closed->ok()) << *pair.at_client.closed;
  EXPECT_TRUE(pair.at_server.closed->ok()) << *pair.at_server.closed;
}

TEST(UcxTransport, FlushToASilentPeerEndsAtTheTimeout) {
  UcxTransport::Options options;
  options.close_timeout = std::chrono::milliseconds(20);
  UcxPair pair(options);
  Buffer source(*pair.client, 1 << 20);
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  pair.at_client.connection->Close(CloseMode::kFlush);
  // Only the client makes progress.
  ASSERT_TRUE(Drive({pair.client.get()}, [&] { return pair.at_client.closed.has_value(); }));
  EXPECT_TRUE(absl::IsCancelled(*pair.at_client.closed)) << *pair.at_client.closed;
  EXPECT_TRUE(sent && absl::IsCancelled(*sent));
}

TEST(UcxTransport, AbortMayFollowFlush) {
  UcxPair pair;
  pair.at_client.connection->Close(CloseMode::kFlush);
  pair.at_client.connection->Close(CloseMode::kAbort);
  ASSERT_TRUE(Drive({pair.client.get()}, [&] { return pair.at_client.closed.has_value(); }));
  EXPECT_TRUE(absl::IsCancelled(*pair.at_client.closed)) << *pair.at_client.closed;
}

TEST(UcxTransport, ClosedConnectionRefusesEverything) {
  UcxPair pair;
  pair.at_client.connection->Close(CloseMode::kAbort);
  Buffer source(*pair.client, 64);
  std::optional<absl::Status> sent;
  const RegisteredSpan piece = source.span();
  EXPECT_TRUE(absl::IsUnavailable(pair.at_client.connection->SendMessage({}, {})));
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  EXPECT_FALSE(sent.has_value()) << "completed inline";
  ASSERT_TRUE(pair.Until([&] { return pair.at_client.closed.has_value(); }));
  EXPECT_TRUE(sent && absl::IsUnavailable(*sent));
  EXPECT_TRUE(absl::IsUnavailable(pair.at_client.connection->SendMessage({}, {})));
  pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  sent.reset();
  ASSERT_TRUE(pair.Until([&] { return sent.has_value(); }));
  EXPECT_TRUE(absl::IsUnavailable(*sent));
}

TEST(UcxTransport, UnsentMessagesAreBounded) {
  UcxTransport::Options options;
  options.unsent_bytes_max = 4 << 20;
  UcxPair pair(options);
  const std::string body(kMessageBytesMax, 'm');
  int accepted = 0;
  absl::Status status;
  // The server does not progress, so sooner or later the socket is full and messages wait.
  while ((status = pair.at_client.connection->SendMessage({}, AsBytes(body))).ok()) {
    ASSERT_LT(++accepted, 1000);
    pair.client->Poll(Duration::zero());
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.messages == accepted; }));
  EXPECT_TRUE(pair.at_client.connection->SendMessage({}, AsBytes(body)).ok());
}

TEST(UcxTransport, OffersOfAPeerAreBounded) {
  UcxTransport::Options options;
  options.offers_max = 3;
  UcxPair pair(options);
  Buffer source(*pair.client, 1000);
  const RegisteredSpan piece = source.span();
  int ended = 0;
  const auto send = [&] {
    pair.at_client.connection->SendPayload({}, {&piece, 1}, [&](absl::Status) { ++ended; });
  };
  for (int i = 0; i < 3; ++i) {
    send();
  }
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.kept.size() == 3; }));
  pair.at_server.kept.pop_front();  // refused: there is room for one more
  ASSERT_TRUE(pair.Until([&] { return ended == 1; }));
  send();
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.kept.size() == 3; }));
  EXPECT_FALSE(pair.at_server.closed.has_value());
  send();
  ASSERT_TRUE(pair.Until([&] { return pair.at_server.closed && ended == 5; }));
  EXPECT_NE(pair.at_server.closed->message().find("more payloads at once than the limit"),
            std::string::npos)
      << *pair.at_server.closed;
  EXPECT_EQ(pair.at_server.payloads, 4) << "the handler does not hear of the one too many";
}

TEST(UcxTransport, ControlMessagesAreBoundedToo) {
  UcxTransport::Options options;
  options.unsent_bytes_max = 1;  // twice that is less than one control message
  const std::unique_ptr<UcxTransport> server = NewTransport(options);
  const std::unique_ptr<UcxTransport> client = NewTransport();
  Recorder at_server, at_client;
  const auto listener =
      std::move(server->Listen({"127.0.0.1", 0}, {},
                               [&](Transport&, std::unique_ptr<Connection> connection) {
                                 at_server.connection = std::move(connection);
                                 return &at_server;
                               }))
          .value();
  at_client.connection = client->Connect(listener->address(), at_client);
  ASSERT_TRUE(Drive({client.get(), server.get()},
                    [&] { return at_client.connected || (at_client.closed && at_server.closed); }));
  EXPECT_FALSE(at_client.connected);
  ASSERT_TRUE(at_server.closed.has_value());
  EXPECT_TRUE(absl::IsUnavailable(*at_server.closed)) << *at_server.closed;
}

TEST(UcxTransport, OneRailOverLoopback) {
  UcxPair pair;
  EXPECT_EQ(Impl(*pair.client).Lanes(), std::vector<std::string>{"tcp/lo"});
  EXPECT_EQ(Impl(*pair.server).Lanes(), std::vector<std::string>{"tcp/lo"});
}

TEST(UcxTransport, DestroyingATransportEndsItsConnections) {
  std::optional<absl::Status> sent;
  auto pair = std::make_unique<UcxPair>();
  Buffer source(*pair->server, 1 << 20);
  const RegisteredSpan piece = source.span();
  pair->at_server.connection->SendPayload({}, {&piece, 1}, [&](absl::Status s) { sent = s; });
  ASSERT_TRUE(pair->Until([&] { return pair->at_client.kept.size() == 1; }));
  pair->at_client.kept.clear();
  pair->client.reset();
  EXPECT_TRUE(pair->at_client.closed && absl::IsCancelled(*pair->at_client.closed));
  EXPECT_FALSE(pair->at_client.connection->SendMessage({}, {}).ok());
  ASSERT_TRUE(Drive({pair->server.get()}, [&] { return pair->at_server.closed.has_value(); }));
  EXPECT_TRUE(sent.has_value());
  pair->client = NewTransport();
}

}  // namespace
}  // namespace tokura::net
