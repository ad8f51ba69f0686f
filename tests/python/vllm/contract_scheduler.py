"""What the connector promises to vLLM's scheduler."""

import os
import sys
import unittest
from types import SimpleNamespace

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin"))

from case import ContractCase, tokens  # noqa: E402


class Lookups(ContractCase):
    def test_saved_by_one_engine_is_promised_to_another_and_is_the_same(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (16, True))
        rig.promise(request, 0, 16)
        rig.step()
        self.assertEqual(rig.received, {"r"})
        self.assertEqual(rig.failed_pages, set())
        self.assertEqual(rig.wrong_tokens(request, 16), [])

    def test_asks_later_while_the_lookup_runs_and_then_answers(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        self.store.hold = {"lookup", "acquire"}
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (None, False))
        self.store.waiting[0].run()
        self.assertEqual(rig.ask(request), (None, False), "found is not promised before it is pinned")
        self.store.run()
        self.assertEqual(rig.ask(request), (16, True))

    def test_answers_nothing_after_its_deadline_and_releases_what_comes_too_late(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"lookup_timeout": "50ms"})
        self.store.hold = {"acquire"}
        request = rig.add("r", tokens(24))
        rig.now = 0.049
        self.assertEqual(rig.ask(request), (None, False))
        rig.now = 0.05
        self.assertEqual(rig.ask(request), (0, False))
        self.store.run()
        self.assertEqual(rig.ask(request), (0, False), "an answer stays what it was")
        self.assertTrue(all(lease.released for lease in self.store.leases))
        self.assertEqual(rig.count("lookup_timeouts"), 1)

    def test_asking_again_and_again_starts_nothing(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request = rig.add("r", tokens(24))
        for _ in range(61):
            self.assertEqual(rig.ask(request), (16, True))
        self.assertEqual(rig.count("lookups"), 1)
        self.assertEqual(len(self.store.leases), 1)

    def test_leaves_a_token_to_compute_and_whole_pages(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        self.assertEqual(rig.ask(rig.add("a", tokens(16)))[0], 8)
        self.assertEqual(rig.ask(rig.add("b", tokens(17)))[0], 16)
        self.assertEqual(rig.ask(rig.add("c", tokens(23)))[0], 16)

    def test_counts_from_the_local_hit_which_may_change(self):
        self.rig().run_alone("w", tokens(40))
        rig = self.rig()
        request = rig.add("r", tokens(40))
        self.assertEqual(rig.ask(request, 24), (8, True))
        self.assertEqual(rig.ask(request, 32), (0, False))
        self.assertEqual(rig.ask(request, 16), (16, True))
        rig.allocate(request, 16)
        rig.promise(request, 16, 16)
        rig.step()
        self.assertEqual(rig.wrong_tokens(request, 32, first=16), [])

    def test_pins_before_it_promises_and_only_what_is_confirmed(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        self.store.hold = {"acquire"}
        request = rig.add("r", tokens(24))
        self.store.lost = {sorted(self.store.blocks)[0]}
        held = self.store.held(list(rig.scheduler._scheduler._requests["r"].chain.chain.keys))
        self.store.run()
        self.assertEqual(rig.ask(request)[0], len(held) * 4 // 8 * 8)

    def test_few_leases_are_taken_ahead_of_the_queue(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"leases_max": 1})
        first, second = rig.add("a", tokens(24)), rig.add("b", tokens(24))
        self.assertEqual(len(self.store.leases), 1)
        rig.now = 100.0
        self.assertEqual(rig.ask(second), (None, False), "pinned when it is its turn, however long that was")
        self.assertEqual(len(self.store.leases), 2)
        self.assertEqual(rig.ask(second), (16, True))
        del first

    def test_a_burst_pins_no_more_than_few_requests_either(self):
        self.rig().run_alone("w", tokens(24))
        for held_back in ("lookup", "acquire"):
            with self.subTest(held_back=held_back):
                rig = self.rig({"leases_max": 2})
                self.store.leases.clear()
                self.store.hold = {held_back}
                requests = [rig.add(f"r{i}", tokens(24)) for i in range(5)]
                self.store.hold.clear()
                self.store.run()
                self.assertEqual(len(self.store.leases), 2)
                # Those that were pinned end: the next ones are pinned at once.
                for request in requests[:2]:
                    rig.finish(request, "FINISHED_ABORTED")
                rig.add("late", tokens(24))
                self.assertEqual(len(self.store.leases), 3)

    def test_lookups_that_find_nothing_or_fail_take_no_place_of_others(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"leases_max": 1})
        rig.add("nothing", tokens(24, first=900))
        self.store.refuse = {"lookup"}
        rig.add("refused", tokens(24))
        self.store.refuse = {"acquire"}
        rig.add("not pinned", tokens(24))
        self.store.refuse = set()
        rig.add("found", tokens(24))
        self.assertEqual([lease.released for lease in self.store.leases], [False])

    def test_a_lease_that_cannot_be_renewed_does_not_end_the_others(self):
        import fake_tokura

        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        for name in ("a", "b"):
            rig.ask(rig.add(name, tokens(24)))

        def refuse():
            raise fake_tokura.TokuraError("closed")

        self.store.leases[0].renew = refuse
        for _ in range(2):
            rig.scheduler._scheduler.book.renew_all()
        self.assertEqual(self.store.leases[1].renewals, 2)

    def test_a_request_that_comes_twice_leaves_no_lease(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request = rig.add("r", tokens(24))
        rig.scheduler.on_new_request(request)
        rig.finish(request, "FINISHED_ABORTED")
        self.assertEqual([lease.released for lease in self.store.leases], [True, True])

    def test_leases_are_renewed_while_a_request_waits(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        rig.ask(rig.add("r", tokens(24)))
        rig.scheduler._scheduler.book.renew_all()
        self.assertEqual([lease.renewals for lease in self.store.leases], [1])

    def test_a_lease_that_nears_its_end_is_taken_anew(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (16, True))
        rig.now = 55.0
        self.assertEqual(rig.ask(request), (16, True))
        self.assertEqual([lease.released for lease in self.store.leases], [True, False])

    def test_leases_are_dropped_at_the_end_at_abort_and_when_not_needed(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        for name, local, status in (("a", 0, "FINISHED_ABORTED"), ("b", 16, "FINISHED_STOPPED")):
            request = rig.add(name, tokens(24))
            rig.ask(request, local)
            if local:
                rig.allocate(request, 24)
                rig.promise(request, local, 0)
            rig.finish(request, status)
        self.assertEqual([lease.released for lease in self.store.leases], [True, True])

    def test_what_is_being_pinned_at_shutdown_is_let_go(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        self.store.hold = {"acquire"}
        rig.add("r", tokens(24))
        rig.scheduler.shutdown()
        self.store.run()
        self.assertEqual([lease.released for lease in self.store.leases], [True])

    def test_leases_are_dropped_once_every_worker_has_loaded(self):
        self.rig(ranks=2).run_alone("w", tokens(24))
        rig = self.rig(ranks=2)
        request = rig.add("r", tokens(24))
        rig.ask(request)
        rig.promise(request, 0, 16)
        self.store.hold = {"get"}
        rig.step()
        self.store.waiting[0].run()
        rig.step()
        self.assertFalse(self.store.leases[-1].released)
        self.store.run()
        rig.step()
        self.assertTrue(self.store.leases[-1].released)
        self.assertEqual(rig.wrong_tokens(request, 16), [])

    def test_a_client_at_its_limit_is_a_miss(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        self.store.refuse = {"lookup"}
        self.assertEqual(rig.ask(rig.add("r", tokens(24))), (0, False))
        self.store.refuse = {"acquire"}
        self.assertEqual(rig.ask(rig.add("s", tokens(24))), (0, False))
        self.assertEqual(rig.count("lookup_failures"), 2)

    def test_requests_that_may_not_read_caches_or_have_embeddings_are_computed(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        request = rig.add("r", tokens(24))
        request.skip_reading_prefix_cache = True
        self.assertEqual(rig.ask(request), (0, False))
        embedded = rig.add("e", tokens(24))
        rig.finish(embedded)
        embedded.prompt_embeds = object()
        rig.scheduler.on_new_request(embedded)
        self.assertEqual(rig.ask(embedded), (0, False))

    def test_roles_load_only_or_save_only(self):
        producer = self.rig(kv_role="kv_producer")
        producer.run_alone("w", tokens(24))
        self.assertEqual(producer.ask(producer.add("r", tokens(24))), (0, False))
        saved = len(self.store.blocks)
        consumer = self.rig(kv_role="kv_consumer")
        consumer.run_alone("v", tokens(24, first=100))
        self.assertEqual(len(self.store.blocks), saved)
        self.assertEqual(consumer.ask(consumer.add("s", tokens(24))), (16, True))


class Identity(ContractCase):
    def hit(self, options=None, rig=None, **request):
        rig = rig or self.rig(options)
        return rig.ask(rig.add("r", tokens(24), **request))[0]

    def test_another_revision_tenant_or_model_is_no_hit(self):
        self.rig().run_alone("w", tokens(24))
        self.assertEqual(self.hit(), 16)
        for option in ("model_revision", "tenant", "model"):
            self.assertEqual(self.hit({option: "other"}), 0, option)

    def test_another_salt_is_no_hit(self):
        self.rig().run_alone("w", tokens(24), salt="a")
        self.assertEqual(self.hit(salt="a"), 16)
        self.assertEqual(self.hit(salt="b"), 0)
        self.assertEqual(self.hit(), 0)

    def test_salts_may_be_any_text(self):
        self.rig().run_alone("w", tokens(24), salt="\ud800" * 1000)
        self.assertEqual(self.hit(salt="\ud800" * 1000), 16)
        self.assertEqual(self.hit(salt="\ud800" * 999), 0)
        self.assertEqual(self.hit(salt="\n"), 0)

    def test_names_of_items_and_adapters_may_be_any_text(self):
        items = [SimpleNamespace(identifier="\ud800", mm_position=SimpleNamespace(offset=0))]
        lora = SimpleNamespace(lora_name="\udc80", lora_path="/nowhere/\udc80")
        self.rig().run_alone("w", tokens(24), items=items, lora=lora)
        self.assertEqual(self.hit(items=items, lora=lora), 16)
        self.assertEqual(self.hit(items=items), 0)

    def test_another_adapter_is_no_hit_and_its_name_is_no_salt(self):
        def lora(name, path="/nowhere/x"):
            return SimpleNamespace(lora_name=name, lora_path=path)

        self.rig().run_alone("w", tokens(24), lora=lora("a"))
        self.assertEqual(self.hit(lora=lora("a")), 16)
        self.assertEqual(self.hit(lora=lora("b")), 0)
        self.assertEqual(self.hit(lora=lora("a", "/nowhere/y")), 0)
        self.assertEqual(self.hit(salt="a"), 0)
        self.assertEqual(self.hit(), 0)

    def test_other_items_at_the_same_placeholders_are_no_hit(self):
        def items(*hashes):
            return [SimpleNamespace(identifier=h, mm_position=SimpleNamespace(offset=6 + 8 * i)) for i, h in enumerate(hashes)]

        self.rig().run_alone("w", tokens(24), items=items("x", "y"))
        self.assertEqual(self.hit(items=items("x", "y")), 16)
        self.assertEqual(self.hit(items=items("x", "z")), 8)
        self.assertEqual(self.hit(items=items("z", "y")), 0)

    def test_engine_hashes_name_blocks(self):
        options = {"identity": "engine-hashes", "block_tokens": 8}

        def run(rig, name, hashes):
            request = rig.add(name, tokens(24))
            rig.finish(request)
            request.block_hashes = hashes
            rig.scheduler.on_new_request(request)
            return request

        writer = self.rig(options)
        request = run(writer, "w", [b"1", b"2", b"3"])
        writer.ask(request)
        writer.promise(request, 0, 0)
        writer.step(new=[(request, 0, 24)])
        reader = self.rig(options)
        self.assertEqual(reader.ask(run(reader, "a", [b"1", b"2", b"3"]))[0], 16)
        self.assertEqual(reader.ask(run(reader, "b", [b"1", b"4", b"3"]))[0], 8)

    def test_engine_hashes_that_differ_between_processes_are_refused(self):
        from tokura.vllm.connector import _engine_hash_tokens

        rig = self.rig()
        options = SimpleNamespace(identity="engine-hashes", block_tokens=64)
        cache = SimpleNamespace(prefix_caching_hash_algo="xxhash", hash_block_size=32)
        os.environ.pop("PYTHONHASHSEED", None)
        with self.assertRaisesRegex(ValueError, "PYTHONHASHSEED"):
            _engine_hash_tokens(options, SimpleNamespace(cache_config=cache), rig.scheduler._groups)
        cache.prefix_caching_hash_algo, cache.hash_block_size = "sha256", 128
        with self.assertRaisesRegex(ValueError, "multiple"):
            _engine_hash_tokens(options, SimpleNamespace(cache_config=cache), rig.scheduler._groups)

    def test_what_engine_hashes_depend_on_is_in_the_line_that_two_engines_compare(self):
        options = {"identity": "engine-hashes", "block_tokens": 8}
        self.addCleanup(os.environ.pop, "PYTHONHASHSEED", None)
        for seed in ("7", None):
            os.environ.pop("PYTHONHASHSEED", None)
            if seed is not None:
                os.environ["PYTHONHASHSEED"] = seed
            with self.assertLogs("vllm.tokura", "INFO") as logs:
                self.rig(options)
            self.assertIn(f"sha256 with PYTHONHASHSEED {seed or 'unset'}", logs.output[0])

    def test_after_a_reset_nothing_old_is_hit_and_running_requests_save_nothing(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        running = rig.add("q", tokens(24, first=50))
        rig.ask(running)
        rig.promise(running, 0, 0)
        saved = len(self.store.blocks)
        self.assertTrue(rig.scheduler.reset_cache())
        rig.step(new=[(running, 0, 24)])
        self.assertEqual(len(self.store.blocks), saved)
        self.assertEqual(self.hit(rig=rig), 0)


class Memory(ContractCase):
    """What is known of a request is forgotten when it ends, whatever became of it."""

    def left(self, rig):
        """Names of collections that are not empty."""
        scheduler = rig.scheduler._scheduler
        sides = [(scheduler, ("_requests", "_held")), (scheduler.book, ("_held", "_pinned"))]
        for worker in rig.workers:
            side = worker._worker
            names = ("_step_loads", "_loads", "_void", "_failed_pages", "_failed_requests", "_held")
            sides += [(side, names), (side._saves, ("_puts", "_released", "_copies"))]
        return [name for side, names in sides for name in names if getattr(side, name)]

    def end(self, rig, request, status):
        rig.finish(request, status)
        for _ in range(3):
            rig.step()
            self.store.hold.clear()
            self.store.run()
        rig.step()

    def test_nothing_is_left_of_any_request(self):
        for options in ({}, {"load_async": False}, {"layerwise": True}, {"leases_max": 1}):
            for ranks in (1, 2):
                with self.subTest(options=options, ranks=ranks):
                    self.setUp()
                    self.every_end(self.rig(options, ranks=ranks))

    def every_end(self, rig):
        rig.run_alone("w", tokens(24))
        self.assertEqual(self.left(rig), [])
        self.end(rig, rig.add("never asked", tokens(24)), "FINISHED_ABORTED")
        self.store.hold = {"lookup"}
        self.end(rig, rig.add("lookup under way", tokens(24)), "FINISHED_ABORTED")
        self.store.hold = {"acquire"}
        self.end(rig, rig.add("acquire under way", tokens(24)), "FINISHED_ABORTED")
        waits = rig.add("waits", tokens(24))
        rig.ask(waits)
        self.end(rig, waits, "FINISHED_ABORTED")
        for name, hold, lost, status in (
            ("load under way", {"get"}, False, "FINISHED_ABORTED"),
            ("loaded", set(), False, "FINISHED_ABORTED"),
            ("load failed", set(), True, "FINISHED_ERROR"),
            ("failed while it was aborted", {"get"}, True, "FINISHED_ABORTED"),
        ):
            loads = rig.add(name, tokens(24))
            external, asynchronous = rig.ask(loads)
            self.assertEqual(external, 16)
            rig.promise(loads, 0, external)
            self.store.hold = hold if asynchronous else set()
            self.store.lost = set(self.store.blocks) if lost else set()
            rig.step(new=() if asynchronous else [(loads, 16, 8)])
            self.end(rig, loads, status)
            self.store.lost = set()
        saves = rig.add("save under way", tokens(24, first=500))
        rig.ask(saves)
        rig.promise(saves, 0, 0)
        self.store.hold = {"put"}
        rig.step(new=[(saves, 0, 24)])
        self.end(rig, saves, "FINISHED_STOPPED")
        preempted = rig.add("preempted", tokens(24, first=700))
        rig.ask(preempted)
        rig.promise(preempted, 0, 0)
        rig.step(new=[(preempted, 0, 24)])
        rig.preempt(preempted)
        rig.step()
        self.end(rig, preempted, "FINISHED_ABORTED")
        self.assertEqual(self.left(rig), [])
        self.assertTrue(all(lease.released for lease in self.store.leases))


class Start(ContractCase):
    def test_says_that_failed_loads_fail_requests_unless_they_are_recomputed(self):
        with self.assertLogs("vllm.tokura", "WARNING") as logs:
            self.rig(kv_load_failure_policy="fail")
        self.assertIn("kv_load_failure_policy", logs.output[0])
        with self.assertNoLogs("vllm.tokura", "WARNING"):
            self.rig()

    def test_starts_without_servers_and_says_so(self):
        self.store.refuse = {"ready"}
        with self.assertLogs("vllm.tokura", "WARNING") as logs:
            self.rig()
        self.assertIn("nobody answers", logs.output[0])

    def test_says_that_blocks_may_be_too_large(self):
        with self.assertLogs("vllm.tokura", "WARNING") as logs:
            self.rig({"part_bytes_max": 255})
        self.assertIn("part_bytes_max", logs.output[0])
        with self.assertNoLogs("vllm.tokura", "WARNING"):
            self.rig({"part_bytes_max": 256})

    def test_options_have_the_clients_names_and_units(self):
        from tokura.vllm.options import parse_options

        options = parse_options({"nodes": "a:1, b:2", "ring-bytes": "32MiB", "progress_timeout": "150ms", "heartbeat": 2})
        self.assertEqual(options.nodes, ("a:1", "b:2"))
        self.assertEqual((options.ring_bytes, options.progress_timeout, options.heartbeat), (32 << 20, 0.15, 2.0))
        arguments = options.client_arguments()
        self.assertEqual(arguments["ring_bytes"], 32 << 20)
        self.assertNotIn("codec_threads", arguments)
        self.assertNotIn("tenant", arguments)
        self.assertNotIn("profile_dir", arguments)
        options = parse_options({"nodes": "a:1", "profile-dir": "/p", "profiles": "a.profile, b.profile"})
        self.assertEqual(options.client_arguments()["profile_dir"], "/p")
        self.assertEqual(options.client_arguments()["profiles"], ("a.profile", "b.profile"))

    def test_wrong_options_are_refused_by_name(self):
        from tokura.vllm.options import parse_options

        for config, name in (
            ({"nodes": "a:1", "ring_byte": 1}, "ring_byte"),
            ({}, "coordinators"),
            ({"nodes": "a:1", "coordinators": "b:1"}, "coordinators"),
            ({"nodes": "a:1", "ring_bytes": "5 apples"}, "ring_bytes"),
            ({"nodes": "a:1", "load_async": "yes"}, "load_async"),
            ({"nodes": "a:1", "block_tokens": 0}, "block_tokens"),
            ({"nodes": "a:1", "identity": "python"}, "identity"),
            ({"nodes": "a:1", "max_error": -1}, "max_error"),
        ):
            with self.assertRaisesRegex(ValueError, name):
                parse_options(config)

    def test_a_cache_never_has_to_be_delivered(self):
        self.assertFalse(self.rig().scheduler.requires_kv_delivery)

    def test_layerwise_work_needs_piecewise_graphs(self):
        connector = type(self.rig().scheduler)
        self.assertTrue(connector.requires_piecewise_for_cudagraph({"layerwise": True}))
        self.assertFalse(connector.requires_piecewise_for_cudagraph({}))

    def test_scheduler_and_worker_of_one_process_share_a_client_until_both_have_ended(self):
        import fake_tokura

        rig = self.rig()
        self.assertEqual(len(fake_tokura.Client.made), 1)
        rig.workers[0].shutdown()
        rig.workers[0].shutdown()
        self.assertFalse(fake_tokura.Client.made[0].closed)
        rig.scheduler.shutdown()
        self.assertTrue(fake_tokura.Client.made[0].closed)


class Statistics(ContractCase):
    def test_everything_that_is_counted_reaches_the_log_line_and_prometheus(self):
        connector = type(self.rig().scheduler)
        from tokura.vllm.stats import COUNTERS, TIMES

        made = {}

        class Metric:
            def __init__(self, name, documentation, labelnames, buckets=None):
                made[name] = self
                self.total = 0

            def inc(self, amount):
                self.total += amount

            observe = inc

        prom = connector.build_prom_metrics(None, {"counter": Metric, "histogram": Metric}, ["engine"], {0: ["0"]})
        # The real base class keys metric types by class; the stand-in by word.
        stats = connector.build_kv_connector_stats({**{name: 1 for name in COUNTERS}, **{name: [0.5] for name in TIMES}})
        total = connector.build_kv_connector_stats().aggregate(stats).aggregate(stats)
        self.assertEqual(len(total.reduce()), len(COUNTERS) + len(TIMES))
        prom.observe(total.data, 0)
        self.assertEqual({made[f"vllm:tokura_{name}"].total for name in COUNTERS}, {2})
        self.assertEqual({made[f"vllm:tokura_{name}"].total for name in TIMES}, {1.0})

    def test_an_interval_is_handed_over_once(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        stats = rig.scheduler.get_kv_connector_stats()
        self.assertEqual(stats.data["lookups"], 1)
        self.assertIsNone(rig.scheduler.get_kv_connector_stats())
        self.assertEqual(rig.workers[0].get_kv_connector_stats().data["saved_blocks"], 6)


if __name__ == "__main__":
    unittest.main()
