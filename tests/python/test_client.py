"""Operations against a real coordinator and node."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import tokura
from conftest import BLOCK_TOKENS, LAYERS, Memory, Server, fresh_tokens, lookup, spec


def put(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray, seed: int
) -> tuple[tokura.TokenChain, Memory]:
    chain = tokura.TokenChain(namespace, tokens)
    source = Memory(len(tokens), seed)
    result = client.put(namespace, chain, source.view())
    assert result.ok, result.statuses
    return chain, source


def test_get_returns_what_was_put(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    source, target = Memory(len(tokens), 1), Memory(len(tokens))
    assert len(client.lookup(namespace, chain)) == 0
    stored = client.put(namespace, chain, source.view())
    assert (stored.stored, stored.ok, stored.codes) == (4, True, bytes(4))
    assert stored.statuses == [tokura.BlockStatus(tokura.StatusCode.OK, "")] * 4
    match = lookup(client, namespace, chain)
    assert (match.blocks, match.tokens, match.held) == (4, 64, False)
    assert match.keys == chain.keys
    assert match.fingerprint == namespace.fingerprint
    assert [(run.first, run.count) for run in match.runs] == [(0, 4)]
    got = client.get(namespace, match, target.view())
    assert (got.ok, got.prefix_ok) == (True, 4)
    assert source.same(target)
    assert got.codecs == ["raw"] * 4
    assert got.declared_error == [0.0] * 4
    assert got.bytes_logical == 4 * namespace.block_bytes
    assert got.bytes_moved > got.bytes_logical


def test_timings_say_where_the_time_went(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    stored = client.put(namespace, chain, Memory(len(tokens), 2).view(), codec="int8")
    match = lookup(client, namespace, chain)
    got = client.get(namespace, match, Memory(len(tokens)).view())
    assert got.ok
    assert 0 < match.seconds < 5
    assert 0 < stored.wire_seconds < stored.seconds
    assert 0 < stored.encode_seconds < stored.seconds * 4
    assert 0 < got.wire_seconds < got.seconds
    assert 0 < got.decode_seconds < got.seconds * 4


def test_lossy_codecs_declare_their_error(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    source, target = Memory(len(tokens), 3), Memory(len(tokens))
    assert client.put(namespace, chain, source.view(), codec="int8").ok
    assert len(client.lookup(namespace, chain, max_error=0)) == 0
    got = client.get(namespace, lookup(client, namespace, chain), target.view())
    assert got.ok
    assert got.codecs == ["int8"] * 4
    assert all(0 < error < 0.2 for error in got.declared_error)
    assert got.proxy_error == [True] * 4
    assert got.bytes_moved < got.bytes_logical / 3
    assert np.abs(target.k[0] - source.k[0]).max() < 0.1


def test_bytes_of_a_match_are_good_elsewhere(
    client: tokura.Client,
    cluster: Server,
    namespace: tokura.Namespace,
    tokens: np.ndarray,
) -> None:
    chain, source = put(client, namespace, tokens, 4)
    with client.acquire(namespace, lookup(client, namespace, chain)) as held:
        assert held.held
        data = held.to_bytes()
        worker = tokura.Client(coordinators=[cluster.address], progress_timeout=5.0)
        with worker:
            worker.wait_ready(20)
            match = tokura.Match.from_bytes(data)
            assert match.held
            target = Memory(len(tokens))
            assert worker.get(namespace, match, target.view()).ok
            assert source.same(target)
            worker.renew(match)
            worker.release(match)


def test_leases_are_renewed_and_released(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, _ = put(client, namespace, tokens, 5)
    lease = client.acquire(namespace, lookup(client, namespace, chain))
    assert len(lease.match) == 4
    assert lease.match.seconds > 0
    assert sum(node.leases for node in client.stat()) >= 1
    lease.renew()
    lease.release()
    lease.release()
    lease.renew()
    deadline = time.monotonic() + 10
    while sum(node.leases for node in client.stat()) > 0:
        assert time.monotonic() < deadline


def test_ranges_of_blocks_and_layers(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, source = put(client, namespace, tokens, 6)
    match = lookup(client, namespace, chain)
    target = Memory(len(tokens))
    got = client.get(
        namespace, match, target.view(), first_block=1, blocks=2, first_layer=1, layers=1
    )
    assert got.ok
    assert len(got.codes) == 2
    part = slice(BLOCK_TOKENS, 3 * BLOCK_TOKENS)
    assert np.array_equal(target.k[1][:, part], source.k[1][:, part])
    assert not target.k[0].any()
    assert not target.k[1][:, :BLOCK_TOKENS].any()
    assert client.get(namespace, match, target.view(), blocks=0).codes == b""
    for bad in ({"first_block": 5}, {"first_block": 3, "blocks": 2}, {"first_layer": -1},
                {"blocks": -1}, {"layers": 0}):
        with pytest.raises(tokura.InvalidArgument):
            client.get(namespace, match, target.view(), **bad)  # type: ignore[arg-type]


def test_layers_are_told_one_by_one(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, source = put(client, namespace, tokens, 7)
    target = Memory(len(tokens))
    future = client.start_get(
        namespace, lookup(client, namespace, chain), target.view(), track_layers=True
    )
    for layer in range(LAYERS):
        assert future.wait_layer(layer, timeout=20)
        assert future.layer_done(layer)
        assert np.array_equal(target.k[layer], source.k[layer])
    assert future.result(20).ok


def test_a_put_releases_its_source_before_it_is_stored(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    source = Memory(len(tokens), 8)
    expected = [array.copy() for array in source.k]
    future = client.start_put(namespace, chain, source.view())
    assert future.wait_released(20)
    assert future.released()
    for array in [*source.k, *source.v]:
        array.fill(np.nan)  # what is overwritten now must not be seen
    assert future.result(20).ok
    target = Memory(len(tokens))
    assert client.get(namespace, lookup(client, namespace, chain), target.view()).ok
    assert all(np.array_equal(a, b) for a, b in zip(target.k, expected, strict=True))


def test_removed_blocks_are_gone(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, _ = put(client, namespace, tokens, 9)
    match = lookup(client, namespace, chain)
    assert client.remove(namespace, chain).ok
    got = client.get(namespace, match, Memory(len(tokens)).view())
    assert set(got.codes) == {tokura.StatusCode.NOT_FOUND}
    again = client.remove(namespace, chain.keys)
    assert {status.code for status in again.statuses} == {tokura.StatusCode.NOT_FOUND}
    with pytest.raises(tokura.InvalidArgument, match="16 bytes"):
        client.remove(namespace, [b"short"])


def test_another_namespace_is_another_world(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, _ = put(client, namespace, tokens, 10)
    other = tokura.Namespace(spec(salt="other"))
    assert len(client.lookup(other, tokura.TokenChain(other, tokens))) == 0
    with pytest.raises(tokura.InvalidArgument, match="another namespace"):
        client.lookup(other, chain)
    with pytest.raises(tokura.InvalidArgument, match="another namespace"):
        client.get(other, lookup(client, namespace, chain), Memory(len(tokens)).view())


def test_ranks_put_their_shards_of_one_sequence(client: tokura.Client, tokens: np.ndarray) -> None:
    sharded = tokura.Namespace(spec(head_shards=2))
    chain = tokura.TokenChain(sharded, tokens)
    source, target = Memory(len(tokens), 11), Memory(len(tokens))
    content_id = tokura.new_content_id()

    def shard(memory: Memory, rank: int) -> tokura.SequenceView:
        head = slice(rank, rank + 1)
        view = tokura.KvView.contiguous([a[head] for a in memory.k], [a[head] for a in memory.v])
        return tokura.SequenceView([view], first_shard=rank)

    futures = [
        client.start_put(sharded, chain, shard(source, rank), content_id_base=content_id)
        for rank in range(2)
    ]
    assert all(future.result(20).ok for future in futures)
    match = lookup(client, sharded, chain)
    assert len(match) == 4
    assert client.get(sharded, match, shard(target, 1)).ok
    assert not target.k[0][0].any()
    assert client.get(sharded, match, target.view()).ok
    assert source.same(target)
    with pytest.raises(tokura.InvalidArgument, match="16 bytes"):
        client.put(sharded, chain, source.view(), content_id_base=b"x")


def test_threads_share_a_client(client: tokura.Client, namespace: tokura.Namespace) -> None:
    wrong: list[object] = []

    def work(number: int) -> None:
        try:
            for turn in range(3):
                sequence = fresh_tokens() + 1_000_000_000 + number * 1000 + turn * 100_000
                chain, source = put(client, namespace, sequence, number)
                target = Memory(len(sequence))
                got = client.get(namespace, lookup(client, namespace, chain), target.view())
                if not (got.ok and source.same(target)):
                    wrong.append(got.statuses)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_other_threads_run_while_one_waits(cluster: Server) -> None:
    # Nobody listens there, so the wait lasts as long as it may.
    with tokura.Client(nodes=["127.0.0.1:1"]) as waiting:
        counted = 0
        over = threading.Event()

        def wait() -> None:
            with pytest.raises(tokura.DeadlineExceeded):
                waiting.wait_ready(0.5)
            over.set()

        thread = threading.Thread(target=wait)
        thread.start()
        while not over.is_set():
            counted += 1
        thread.join()
    assert counted > 1000


def test_asyncio(client: tokura.Client, namespace: tokura.Namespace) -> None:
    async def one(number: int) -> bool:
        sequence = fresh_tokens() + 2_000_000_000
        chain = tokura.TokenChain(namespace, sequence)
        source, target = Memory(len(sequence), number), Memory(len(sequence))
        stored = await client.start_put(namespace, chain, source.view())
        match = lookup(client, namespace, chain)
        assert len(await client.start_lookup(namespace, chain)) == len(match)
        lease = await client.start_acquire(namespace, match)
        with lease as held:
            got = await client.start_get(namespace, held, target.view())
        removed = await client.start_remove(namespace, chain)
        return stored.ok and got.ok and source.same(target) and removed.ok

    async def all_of_them() -> list[bool]:
        return await asyncio.gather(*(one(number) for number in range(8)))

    assert asyncio.run(all_of_them()) == [True] * 8


def test_cancelling_a_task_leaves_the_view_quiet(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, _ = put(client, namespace, tokens, 12)
    match = lookup(client, namespace, chain)
    target = Memory(len(tokens))

    async def cancelled() -> bytes:
        future = client.start_get(namespace, match, target.view())

        async def wait() -> None:
            await future

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        assert future.done()
        return target.k[0].tobytes()

    seen = asyncio.run(cancelled())
    assert target.k[0].tobytes() == seen


def test_callbacks_run_once_wherever_they_come(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray, caplog: pytest.LogCaptureFixture
) -> None:
    chain, _ = put(client, namespace, tokens, 13)
    lookup(client, namespace, chain)
    called: list[int] = []
    both = threading.Event()
    future = client.start_lookup(namespace, chain)

    def broken(_: object) -> None:
        raise ValueError("a bug of the caller")

    def last(done: tokura.Future[tokura.Match]) -> None:
        called.append(len(done.result(0)))
        both.set()

    future.add_done_callback(broken)
    future.add_done_callback(last)
    assert both.wait(20)
    future.add_done_callback(last)
    assert called == [4, 4]
    assert "a callback of an operation failed" in caplog.text


def test_polling(client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray) -> None:
    future = client.start_lookup(namespace, tokura.TokenChain(namespace, tokens))
    deadline = time.monotonic() + 20
    while not future.done():
        assert time.monotonic() < deadline
    assert len(future.result(0)) == 0
    assert future.result() is future.result()


def test_dropped_futures_leave_memory_alone(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain, _ = put(client, namespace, tokens, 14)
    match = lookup(client, namespace, chain)
    target = Memory(len(tokens))
    for _ in range(20):
        client.start_get(namespace, match, target.view())
        gc.collect()
        seen = target.k[0].tobytes()
        assert target.k[0].tobytes() == seen
    client.start_put(namespace, chain, target.view())


def test_a_dead_node_is_a_miss_and_costs_one_deadline(
    node: Server, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    with tokura.Client(nodes=[node.address], ingest_codec="raw", progress_timeout=0.5) as client:
        client.wait_ready(20)
        chain, _ = put(client, namespace, tokens, 15)
        match = lookup(client, namespace, chain)
        assert len(match) == 4
        node.kill()
        target = Memory(len(tokens))
        begin = time.monotonic()
        for _ in range(50):
            got = client.get(namespace, match, target.view())
            assert got.prefix_ok == 0
            assert tokura.StatusCode.OK not in got.codes
            assert all(status.message for status in got.statuses)
        assert len(client.lookup(namespace, chain)) == 0
        assert not client.put(namespace, chain, target.view()).ok
        assert time.monotonic() - begin < 10
        assert [stat.error is not None for stat in client.stat()] in ([True], [])


def test_a_stopped_client_refuses(cluster: Server, namespace: tokura.Namespace) -> None:
    client = tokura.Client(coordinators=[cluster.address])
    future = client.start_lookup(namespace, tokura.TokenChain(namespace, range(64)))
    client.close()
    client.close()
    assert client.closed
    assert future.done()
    with pytest.raises(tokura.FailedPrecondition, match="closed"):
        client.start_lookup(namespace, tokura.TokenChain(namespace))
    with pytest.raises(tokura.FailedPrecondition, match="closed"):
        client.set_nodes([])


def test_a_dropped_client_ends_its_threads(cluster: Server, namespace: tokura.Namespace) -> None:
    def threads() -> int:
        return len(os.listdir("/proc/self/task"))

    before = threads()
    client = tokura.Client(coordinators=[cluster.address])
    future = client.start_lookup(namespace, tokura.TokenChain(namespace, range(64)))
    told = threading.Event()
    future.add_done_callback(lambda done: told.set())
    assert told.wait(20)
    assert threads() > before
    del client
    gc.collect()
    assert threads() == before
    assert len(future.result(0)) == 0


def test_nodes_can_be_changed(node: Server, namespace: tokura.Namespace) -> None:
    with tokura.Client(nodes=[]) as client:
        client.set_nodes([node.address])
        client.wait_ready(20)
        assert [stat.error for stat in client.stat()] == [None]
        assert client.stat()[0].capacity_bytes > 0
        with pytest.raises(tokura.InvalidArgument):
            client.set_nodes(["no address"])


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": ["nonsense"]},
        {"nodes": ["127.0.0.1:1"], "coordinators": ["127.0.0.1:2"]},
        {"nodes": "127.0.0.1:1"},
        {"progress_timeout": 0},
        {"progress_timeout": -1},
        {"heartbeat": float("nan")},
        {"ingest_codec": "mp3"},
        {"codec_threads": 0},
        {"ring_bytes": -1},
        {"ring_bytes": 1},
        {"wake": "never"},
        {"profile_dir": "/nowhere"},
        {"profiles": ["/dev/null"]},
        {"profiles": "one.profile"},
    ],
)
def test_bad_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises((tokura.InvalidArgument, tokura.TokuraError)) as caught:
        tokura.Client(**options)  # type: ignore[arg-type]
    assert caught.value.code is not tokura.StatusCode.INTERNAL
    assert caught.value.message


@pytest.mark.parametrize("option", ["profile_dir", "profiles"])
def test_profiles_that_cannot_be_used_are_named(tmp_path: Path, option: str) -> None:
    damaged = tmp_path / "damaged.profile"
    damaged.write_bytes(b"TOKURAPF" + bytes(200))
    value = tmp_path if option == "profile_dir" else [damaged]
    with pytest.raises(tokura.TokuraError) as caught:
        tokura.Client(**{option: value})  # type: ignore[arg-type]
    assert str(damaged) in caught.value.message


def test_a_codec_that_needs_a_profile_is_refused_with_the_reason(
    client: tokura.Client, namespace: tokura.Namespace, tokens: np.ndarray
) -> None:
    chain = tokura.TokenChain(namespace, tokens)
    result = client.put(namespace, chain, Memory(len(tokens), 1).view(), codec="qserve4")
    for status in result.statuses:
        assert status.code is tokura.StatusCode.FAILED_PRECONDITION
        assert "needs a model profile" in status.message


def test_options_are_keywords() -> None:
    with pytest.raises(TypeError):
        tokura.Client(["127.0.0.1:1"])  # type: ignore[misc]
    with pytest.raises(TypeError):
        tokura.Client(node=["127.0.0.1:1"])  # type: ignore[call-arg]
    with pytest.raises(tokura.InvalidArgument, match="loud"):
        tokura.set_log_level("loud")  # type: ignore[arg-type]


def test_metrics_are_text(client: tokura.Client) -> None:
    text = client.metrics_text()
    assert "# TYPE tokura_client_requests_total counter" in text


def test_memory_does_not_grow(client: tokura.Client, namespace: tokura.Namespace) -> None:
    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * 4096

    sequence = fresh_tokens() + 3_000_000_000
    chain, _ = put(client, namespace, sequence, 16)
    target = Memory(len(sequence))

    def work(turns: int) -> None:
        for _ in range(turns):
            match = lookup(client, namespace, chain)
            with client.acquire(namespace, match) as held:
                assert client.get(namespace, held, target.view()).ok
            assert client.put(namespace, chain, target.view()).ok
            tokura.Match.from_bytes(match.to_bytes())

    work(50)
    gc.collect()
    before = resident()
    work(300)
    gc.collect()
    assert resident() - before < 8 << 20
