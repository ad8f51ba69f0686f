"""What the connector does with the engine's pages: loads, saves, failures, fences, layouts."""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin"))

import engine  # noqa: E402
from case import ContractCase, tokens  # noqa: E402


class Loads(ContractCase):
    def load(self, rig, name, count, local=0, fill=True):
        """Ask, allocate and load; return the request and what was promised."""
        request = rig.add(name, tokens(count))
        external, _ = rig.ask(request, local)
        if local:
            rig.allocate(request, local)
            if fill:
                rig.compute(request, 0, local)
        rig.promise(request, local, external)
        return request, external

    def test_pages_larger_than_blocks_and_blocks_larger_than_pages(self):
        for block, page in ((4, 8), (8, 4), (4, 4), (12, 4)):
            with self.subTest(block=block, page=page):
                self.setUp()
                settings = {"options": {"block_tokens": block}, "page_tokens": page}
                self.rig(**settings).run_alone("w", tokens(48))
                rig = self.rig(**settings)
                request, external = self.load(rig, "r", 48)
                self.assertEqual(external % page, 0)
                self.assertGreaterEqual(external, 24)
                rig.step()
                self.assertEqual(rig.wrong_tokens(request, external), [])
                self.assertEqual(rig.failed_pages, set())

    def test_a_writer_and_a_reader_with_other_pages(self):
        self.rig(page_tokens=8).run_alone("w", tokens(48))
        rig = self.rig(page_tokens=4)
        request, external = self.load(rig, "r", 48)
        self.assertEqual(external, 44)
        rig.step()
        self.assertEqual(rig.wrong_tokens(request, 44), [])

    def test_pages_of_the_local_hit_are_not_written(self):
        settings = {"options": {"block_tokens": 8}, "page_tokens": 4}
        self.rig(**settings).run_alone("w", tokens(48))
        rig = self.rig(**settings)
        request, external = self.load(rig, "r", 48, local=12, fill=False)
        self.assertEqual(external, 32)
        rig.scribble(request.pages[0][:3], -7.0)
        rig.step()
        self.assertEqual(rig.wrong_tokens(request, 44, first=12), [])
        for page in request.pages[0][:3]:
            self.assertEqual(set(rig.memory[0][rig.names[0]][page]), {-7.0})

    def test_a_synchronous_load_is_there_before_the_step_computes(self):
        options = {"load_async": False}
        self.rig().run_alone("w", tokens(24))
        rig = self.rig(options)
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (16, False))
        rig.promise(request, 0, 16)
        rig.step(new=[(request, 16, 8)])
        self.assertEqual(rig.wrong_tokens(request, 24), [])
        self.assertEqual(rig.received, set(), "only loads between steps are reported as received")
        self.assertTrue(self.store.leases[-1].released)

    def test_a_request_preempted_before_its_load_is_reported_is_promised_nothing_until_it_is(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"load_async": False})
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (16, False))
        rig.promise(request, 0, 16)
        answers = []

        def schedule_ahead():
            rig.before_report = None
            rig.scribble(rig.preempt(request))
            rig.step()
            answers.append(rig.ask(request))

        rig.before_report = schedule_ahead
        rig.step(new=[(request, 16, 8)])
        self.assertEqual(answers, [(None, False)])
        self.assertEqual(rig.ask(request), (16, False), "and then it loads again")
        rig.promise(request, 0, 16)
        rig.step(resumed=[(request, 16, 8)])
        self.assertEqual(rig.wrong_tokens(request, 24), [])
        self.assertEqual(rig.count("loads"), 2)
        rig.finish(request)
        self.assertTrue(all(lease.released for lease in self.store.leases))

    def test_layers_are_waited_for_one_by_one(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"layerwise": True})
        request = rig.add("r", tokens(24))
        self.assertEqual(rig.ask(request), (16, False))
        rig.promise(request, 0, 16)
        self.store.hold = {"get"}
        order = []
        works = rig.workers[0]._worker
        waited = works.wait_layer
        works.wait_layer = lambda name: (order.append((name, len(self.store.waiting))), waited(name))
        rig.step(new=[(request, 16, 8)])
        self.assertEqual(order, [(rig.names[0], 1), (rig.names[1], 0)])
        self.assertEqual(rig.wrong_tokens(request, 24), [])

    def test_a_lost_block_is_reported_from_its_page_on_and_saved_again(self):
        writer = self.rig()
        writer.run_alone("w", tokens(40))
        rig = self.rig()
        request, external = self.load(rig, "r", 40)
        self.assertEqual(external, 32)
        key = rig.scheduler._scheduler._requests["r"].chain.chain.keys[3]
        self.store.lost = {key}
        rig.step()
        self.assertEqual(rig.received, {"r"})
        self.assertEqual(rig.failed_pages, set(request.pages[0][1:4]))
        self.assertEqual(rig.wrong_tokens(request, 8), [])
        # The engine computes from there, does not load again, and saves what was lost.
        del self.store.blocks[key]
        self.store.writers.pop(key)
        self.store.lost.clear()
        self.assertEqual(rig.ask(request), (0, False))
        rig.step(new=[(request, 8, 32)])
        self.assertIn(key, self.store.blocks)
        self.assertEqual(rig.count("load_failures"), 1)

    def test_what_was_computed_after_a_failed_load_is_not_saved(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"load_async": False})
        request = rig.add("r", tokens(32))
        external, _ = rig.ask(request)
        rig.promise(request, 0, external)
        keys = rig.scheduler._scheduler._requests["r"].chain.chain.keys
        self.store.lost = {keys[1]}
        before = set(self.store.blocks)
        rig.step(new=[(request, external, 32 - external)])
        self.assertEqual(set(self.store.blocks), before, "its KV was computed over pages that were not filled")
        self.assertEqual(rig.failed_pages, set(request.pages[0][:3]))
        self.assertEqual(rig.count("saves_dropped"), 1)
        rig.step(running=[(request, 0, 32)])
        self.assertIn(keys[7], self.store.blocks)
        self.assertEqual(rig.wrong_tokens(request, 32), [])

    def test_a_client_that_cannot_start_a_load_is_a_failed_load(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request, _ = self.load(rig, "r", 24)
        self.store.refuse = {"get"}
        rig.step()
        self.assertEqual((rig.received, rig.failed_pages), ({"r"}, set(request.pages[0][:2])))

    def test_an_aborted_load_is_cancelled_and_still_reported(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request, _ = self.load(rig, "r", 24)
        self.store.hold = {"get"}
        rig.step()
        request.status = "FINISHED_ABORTED"
        held, _ = rig.scheduler.request_finished_all_groups(request, request.pages)
        self.assertFalse(held, "the engine itself keeps pages that are being loaded")
        rig.pending["finished"].add("r")
        rig.step()
        self.assertTrue(self.store.waiting[0].cancelled)
        self.assertEqual(rig.received, set())
        self.store.run()
        rig.step()
        self.assertEqual(rig.received, {"r"})
        rig.step()
        self.assertEqual(rig.count("load_failures"), 0)

    def test_a_request_aborted_between_promise_and_load_is_reported_once_and_its_pages_are_written_no_more(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request, _ = self.load(rig, "r", 24)
        pages = list(request.pages[0])
        request.status = "FINISHED_ABORTED"
        held, _ = rig.scheduler.request_finished_all_groups(request, request.pages)
        self.assertFalse(held)
        self.assertTrue(self.store.leases[-1].released)
        rig.pending["finished"].add("r")
        self.store.hold = {"get"}
        # One step brings the workers both the load and the news that nobody waits for it.
        rig.step()
        self.assertEqual(rig.received, set(), "the engine keeps the pages until it hears of the load")
        self.assertTrue(self.store.waiting[0].cancelled)
        self.store.run()
        rig.step()
        self.assertEqual(rig.received, {"r"})
        rig.scribble(pages, 3)
        rig.received.clear()
        rig.step()
        self.assertEqual((rig.received, rig.failed_pages), (set(), set()))
        self.assertEqual({v for p in pages for v in rig.memory[0][rig.names[0]][p]}, {3})

    def test_shutdown_ends_loads_and_saves_and_touches_no_page_after_it(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig()
        request, _ = self.load(rig, "r", 24)
        saved = rig.add("s", tokens(24, first=300))
        rig.ask(saved)
        rig.promise(saved, 0, 0)
        self.store.hold = {"get", "put"}
        rig.step(new=[(saved, 0, 24)])
        under_way = list(self.store.waiting)
        self.assertEqual(len(under_way), 2)
        for connector in (*rig.workers, rig.scheduler):
            connector.shutdown()
        self.assertTrue(all(future.cancelled and future.done() for future in under_way))
        self.assertTrue(all(lease.released for lease in self.store.leases))

    def test_hits_of_few_tokens_are_computed(self):
        self.rig().run_alone("w", tokens(24))
        rig = self.rig({"load_tokens_min": 17})
        self.assertEqual(rig.ask(rig.add("r", tokens(24))), (0, False))


class Ranks(ContractCase):
    def test_ranks_save_their_heads_and_load_them(self):
        self.rig(ranks=2, heads=4).run_alone("w", tokens(24))
        rig = self.rig(ranks=2, heads=4)
        request = rig.add("r", tokens(24))
        external, asynchronous = rig.ask(request)
        self.assertEqual((external, asynchronous), (16, True))
        rig.promise(request, 0, external)
        rig.step()
        self.assertEqual(rig.wrong_tokens(request, 16), [])

    def test_other_numbers_of_ranks_share_with_a_common_granule(self):
        options = {"head_shards": 4}
        self.rig(options, ranks=1, heads=4).run_alone("w", tokens(24))
        for ranks in (2, 4):
            rig = self.rig(options, ranks=ranks, heads=4)
            request = rig.add("r", tokens(24))
            self.assertEqual(rig.ask(request)[0], 16)
            rig.promise(request, 0, 16)
            rig.step()
            self.assertEqual(rig.wrong_tokens(request, 16), [])

    def test_a_granule_that_cuts_through_a_ranks_heads_is_refused(self):
        with self.assertRaisesRegex(ValueError, "head_shards"):
            self.rig({"head_shards": 2}, ranks=4, heads=4)

    def test_ranks_that_hold_the_same_heads_save_them_once(self):
        rig = self.rig(ranks=4, heads=2, specs=[engine.spec(heads=1)])
        self.assertEqual([w._worker._map.shards.saves for w in rig.workers], [True, False, True, False])
        self.assertEqual([w._worker._map.shards.first for w in rig.workers], [0, 0, 1, 1])

    def test_one_rank_that_fails_fails_the_load_for_all_and_only_then(self):
        self.rig(ranks=2).run_alone("w", tokens(24))
        rig = self.rig({"load_async": False}, ranks=2)
        request = rig.add("r", tokens(24))
        external, asynchronous = rig.ask(request)
        self.assertTrue(asynchronous, "ranks agree before any of them computes")
        rig.promise(request, 0, external)
        self.store.hold = {"get"}
        rig.step()
        self.assertEqual(len(self.store.waiting), 2)
        self.store.waiting[0].run()
        rig.step()
        self.assertEqual(rig.received, set())
        self.store.lost = set(self.store.blocks)
        self.store.run()
        rig.step()
        self.assertEqual(rig.received, {"r"})
        self.assertEqual(rig.failed_pages, set(request.pages[0][:2]))
        self.assertEqual(rig.ask(request), (0, False))


class Saves(ContractCase):
    def saving(self, rig, name, count, first=0, **more):
        """A request whose save is planned but has not read its pages yet."""
        request = rig.add(name, tokens(count, first), **more)
        rig.ask(request)
        rig.promise(request, 0, 0)
        self.store.hold = {"put"}
        rig.step(new=[(request, 0, count)])
        return request

    def wrong_blocks(self, count, first=0):
        """Whether what is stored for these tokens differs from what the model computed."""
        rig = self.rig()
        request = rig.add("check", tokens(count + 1, first))
        external, _ = rig.ask(request)
        rig.promise(request, 0, external)
        rig.step()
        return external, rig.wrong_tokens(request, external)

    def test_pages_of_a_finished_request_are_held_until_its_saves_have_read_them(self):
        rig = self.rig()
        request = self.saving(rig, "w", 24)
        self.assertFalse(rig.scheduler.has_pending_push_work())
        self.assertTrue(rig.finish(request))
        self.assertTrue(rig.scheduler.has_pending_block_frees())
        self.assertTrue(rig.scheduler.has_pending_push_work(), "else an idle engine would never free the pages")
        rig.step()
        self.assertEqual(rig.sent, set())
        self.store.run()
        rig.step()
        self.assertEqual(rig.sent, {"w"})
        self.assertFalse(rig.scheduler.has_pending_block_frees())
        self.assertFalse(rig.scheduler.has_pending_push_work())
        self.store.hold.clear()
        self.assertEqual(self.wrong_blocks(24), (24, []))

    def test_pages_are_held_too_when_a_request_ends_in_the_step_that_loaded_for_it(self):
        rig = self.rig({"load_async": False})
        rig.run_alone("v", tokens(24))
        request = rig.add("w", tokens(32))
        external, _ = rig.ask(request)
        rig.promise(request, 0, external)
        self.store.hold = {"put"}
        held = []
        rig.before_report = lambda: held.append(rig.finish(request))
        rig.step(new=[(request, external, 32 - external)])
        rig.before_report = None
        self.assertEqual(held, [True])
        self.store.run()
        rig.step()
        self.assertEqual(rig.sent, {"w"})

    def test_pages_are_not_held_when_the_saves_have_read_them(self):
        rig = self.rig()
        request = self.saving(rig, "w", 24)
        self.store.run()
        rig.step()
        self.assertFalse(rig.finish(request))
        rig.step()
        self.assertEqual(rig.sent, set())

    def test_a_preempted_requests_pages_are_read_before_another_writes_them(self):
        rig = self.rig()
        request = self.saving(rig, "w", 24)
        taken = rig.preempt(request)
        other = rig.add("o", tokens(24, first=500))
        rig.ask(other)
        rig.free = [p for p in taken] + [p for p in rig.free if p not in taken]
        rig.promise(other, 0, 0)
        self.assertEqual(other.pages[0], [])
        self.store.hold.clear()
        rig.step(new=[(other, 0, 24)])
        self.assertTrue(set(other.pages[0]) <= set(taken))
        self.assertEqual(rig.count("fences"), 1)
        self.assertEqual(self.wrong_blocks(24), (24, []))

    def test_a_preempted_request_loads_what_it_saved(self):
        rig = self.rig()
        request = self.saving(rig, "w", 24)
        rig.scribble(rig.preempt(request)) if not self.store.waiting else self.store.run()
        rig.preempt(request) if request.pages[0] else None
        self.store.hold.clear()
        rig.step()
        external, asynchronous = rig.ask(request)
        self.assertEqual((external, asynchronous), (16, True))
        rig.promise(request, 0, 16)
        rig.step()
        self.assertEqual(rig.wrong_tokens(request, 16), [])

    def test_blocks_are_saved_as_they_are_completed_in_chunks_and_while_decoding(self):
        rig = self.rig()
        request = rig.add("w", tokens(10))
        rig.ask(request)
        rig.promise(request, 0, 0)
        rig.step(new=[(request, 0, 6)])
        self.assertEqual(len(self.store.blocks), 1)
        rig.step(running=[(request, 6, 4)])
        self.assertEqual(len(self.store.blocks), 2)
        for n in range(10, 17):
            request.all_token_ids.append(n)
            rig.step(running=[(request, n, 1)])
        self.assertEqual(len(self.store.blocks), 4)
        self.assertEqual(self.wrong_blocks(16), (16, []))

    def test_decoded_blocks_are_left_out_when_asked(self):
        rig = self.rig({"save_decoded": False})
        request = rig.add("w", tokens(6))
        rig.ask(request)
        rig.promise(request, 0, 0)
        rig.step(new=[(request, 0, 6)])
        request.all_token_ids += [6, 7]
        rig.step(running=[(request, 6, 2)])
        rig.finish(request)
        rig.step()
        self.assertEqual(len(self.store.blocks), 1)

    def test_tokens_that_are_not_known_yet_are_not_saved_until_they_are(self):
        """Drafts and steps ahead of their sampling count as computed before their ids are known."""
        rig = self.rig()
        request = rig.add("w", tokens(7))
        rig.ask(request)
        rig.promise(request, 0, 0)
        rig.step(new=[(request, 0, 7)])
        output = tokens(9)
        # The step computes token 7, whose id the scheduler does not have.
        rig.compute = lambda r, first, end: None
        rig.step(running=[(request, 7, 1)])
        self.assertEqual(len(self.store.blocks), 1)
        request.all_token_ids = output[:8]
        del rig.compute
        rig.compute(request, 7, 8)
        self.assertTrue(rig.finish(request), "the last block is saved at the end")
        rig.step()
        self.assertEqual(rig.sent, {"w"})
        self.assertEqual(len(self.store.blocks), 2)
        self.assertEqual(self.wrong_blocks(8), (8, []))

    def test_aborted_requests_save_no_more(self):
        rig = self.rig()
        request = rig.add("w", tokens(8))
        rig.ask(request)
        rig.promise(request, 0, 0)
        rig.step(new=[(request, 0, 3)])
        request.num_computed_tokens = 8
        rig.finish(request, "FINISHED_ABORTED")
        rig.step()
        self.assertEqual(len(self.store.blocks), 0)

    def test_what_exists_is_not_saved_again_but_local_hits_that_were_lost_are(self):
        rig = self.rig()
        rig.run_alone("w", tokens(24))
        lost = list(self.store.blocks)[3:]
        for key in lost:
            del self.store.blocks[key], self.store.writers[key]
        request = rig.add("r", tokens(32))
        rig.allocate(request, 24)
        rig.compute(request, 0, 24)
        self.assertEqual(rig.ask(request, 24), (0, False))
        rig.promise(request, 24, 0)
        plan = rig.step(new=[(request, 24, 8)])
        self.assertEqual([(s.first_block, s.blocks) for s in plan.saves], [(3, 5)])

    def test_what_a_lossy_form_decoded_to_is_never_saved_as_the_engines_own(self):
        options = {"codec": "kivi4"}
        self.rig(options).run_alone("w", tokens(24))
        rig = self.rig(options)
        request = rig.add("r", tokens(32))
        self.assertEqual(rig.ask(request)[0], 24)
        rig.promise(request, 0, 24)
        rig.step()
        rig.step(new=[(request, 24, 8)])
        saved = set(self.store.blocks)
        # All of it is lost outside; the engine's own cache still has the decoded pages.
        self.store.blocks.clear()
        self.store.writers.clear()
        other = rig.add("o", tokens(32))
        other.pages = request.pages
        rig.ask(other, 24)
        rig.promise(other, 24, 0)
        plan = rig.step(new=[(other, 24, 8)])
        self.assertEqual([(s.first_block, s.blocks) for s in plan.saves], [(6, 2)])
        # The pages go to somebody who computes them.
        rig.free = request.pages[0] + rig.free
        third = rig.add("t", tokens(24, first=900))
        rig.ask(third)
        rig.promise(third, 0, 0)
        plan = rig.step(new=[(third, 0, 24)])
        self.assertEqual([(s.first_block, s.blocks) for s in plan.saves], [(0, 6)])
        self.assertTrue(saved)

    def test_what_is_computed_after_a_lossy_load_failed_is_saved(self):
        for options in ({"load_async": False}, {}):
            with self.subTest(options=options):
                self.setUp()
                self.rig({"codec": "kivi4"}).run_alone("w", tokens(40))
                rig = self.rig({"codec": "kivi4", **options})
                request = rig.add("r", tokens(40))
                external, asynchronous = rig.ask(request)
                rig.promise(request, 0, external)
                keys = rig.scheduler._scheduler._requests["r"].chain.chain.keys
                lost = keys[2:]
                for key in lost:
                    del self.store.blocks[key], self.store.writers[key]
                rig.step(new=() if asynchronous else [(request, external, 40 - external)])
                self.assertEqual(rig.failed_pages, set(request.pages[0][1:4]))
                again = [(request, 8, 32)]
                rig.step(**({"new": again} if asynchronous else {"running": again}))
                self.assertTrue(set(lost) <= set(self.store.blocks))

    def test_a_page_that_held_something_lossy_and_now_something_exact_is_saved_from(self):
        self.rig().run_alone("w", tokens(24))
        self.rig({"codec": "kivi4"}).run_alone("v", tokens(24, first=300))
        rig = self.rig()
        pages = []
        for name, first in (("lossy", 300), ("exact", 0)):
            rig.free = pages + [p for p in rig.free if p not in pages]
            request = rig.add(name, tokens(24, first))
            external, _ = rig.ask(request)
            rig.promise(request, 0, external)
            rig.step()
            pages = list(request.pages[0])
            rig.step(new=[(request, external, 24 - external)])
            rig.finish(request)
            rig.step()
        self.store.blocks.clear()
        self.store.writers.clear()
        other = rig.add("again", tokens(24))
        other.pages = (list(pages) + [rig.free.pop()],)
        rig.ask(other, 16)
        rig.promise(other, 16, 0)
        plan = rig.step(new=[(other, 16, 8)])
        self.assertEqual([(s.first_block, s.blocks) for s in plan.saves], [(0, 6)])

    def test_a_client_at_its_limit_drops_the_save_and_frees_the_pages(self):
        rig = self.rig()
        self.store.refuse = {"put"}
        request = rig.run_alone("w", tokens(24))
        self.assertEqual((self.store.blocks, rig.count("saves_dropped")), ({}, 1))
        self.assertEqual(request.pages, ([],))

    def test_layers_are_saved_from_copies_so_that_pages_are_free_at_once(self):
        rig = self.rig({"layerwise": True})
        request = self.saving(rig, "w", 24)
        rig.scribble(request.pages[0])
        self.store.hold.clear()
        self.store.run()
        self.assertEqual(self.wrong_blocks(24), (24, []))

    def test_layers_whose_hook_was_not_called_are_copied_at_the_end_of_the_step(self):
        rig = self.rig({"layerwise": True})
        worker = rig.workers[0]
        worker.save_kv_layer = lambda *a: None
        self.saving(rig, "w", 24)
        self.store.hold.clear()
        self.store.run()
        self.assertEqual(self.wrong_blocks(24), (24, []))


class Windows(ContractCase):
    """A model with full attention and sliding-window layers: two groups with page tables of their own."""

    def specs(self):
        return [engine.spec(), engine.spec(engine.SlidingWindowSpec, sliding_window=10)]

    def test_only_the_windows_pages_are_loaded_and_the_rest_is_left_alone(self):
        self.rig(specs=self.specs()).run_alone("w", tokens(48))
        rig = self.rig({"load_async": False}, specs=self.specs())
        request = rig.add("r", tokens(48))
        external, asynchronous = rig.ask(request)
        self.assertEqual((external, asynchronous), (40, True))
        rig.allocate(request, 40)
        request.pages[1][:3] = [0, 0, 0]
        rig.promise(request, 0, 40)
        rig.scribble([0], 5.0)
        rig.step()
        self.assertEqual(rig.received, {"r"})
        self.assertEqual(rig.wrong_tokens(request, 40, group=0), [])
        self.assertEqual(rig.wrong_tokens(request, 40, group=1, first=24), [])
        self.assertEqual(set(rig.memory[0][rig.names[-1]][0]), {5.0})

    def test_a_failed_load_fails_the_whole_request_not_pages(self):
        self.rig(specs=self.specs()).run_alone("w", tokens(48))
        rig = self.rig(specs=self.specs())
        request = rig.add("r", tokens(48))
        external, _ = rig.ask(request)
        rig.promise(request, 0, external)
        self.store.lost = set(list(self.store.blocks)[-3:])
        rig.step()
        self.assertEqual((rig.failed_requests, rig.failed_pages), ({"r"}, set()))

    def test_pages_that_the_window_left_behind_are_not_saved_from(self):
        rig = self.rig(specs=self.specs())
        request = rig.add("w", tokens(40))
        rig.ask(request)
        rig.promise(request, 0, 0)
        rig.step(new=[(request, 0, 24)])
        request.all_token_ids += [1, 2, 3, 4]
        # Blocks that became known late: the window has moved on from their pages.
        state = rig.scheduler._scheduler._requests["w"]
        state.next_save = 1
        plan = rig.step(running=[(request, 24, 16)])
        self.assertEqual([job.pages[1][:2] for job in plan.saves], [(0, state.pages[1][1])])


class Packed(ContractCase):
    """bfloat16 on processors with AMX: pages that no strides describe are copied and unpacked."""

    def packed(self, options=None, *, page_tokens=16, variant="amx", **more):
        spec = engine.spec(page_tokens=page_tokens, head_size=32, head_size_v=32, dtype="torch.bfloat16")
        return self.rig(options, page_tokens=page_tokens, variant=variant, specs=[spec], **more)

    def load(self, rig, count, local=0):
        request = rig.add("r", tokens(count))
        rig.allocate(request, local)
        external, _ = rig.ask(request, local)
        rig.promise(request, local, external)
        rig.step()
        return request, external

    def test_what_one_saves_another_loads(self):
        self.packed().run_alone("w", tokens(40))
        rig = self.packed()
        request, external = self.load(rig, 40)
        self.assertEqual(external, 32)
        self.assertEqual(rig.failed_pages, set())
        self.assertEqual(rig.wrong_tokens(request, 32), [])

    def test_engines_with_and_without_packing_share_blocks(self):
        for writer, reader, pages in (("amx", "vec", 16), ("vec", "amx", 16), ("amx", "vec", 32), ("vec", "amx", 32)):
            with self.subTest(writer=writer, reader=reader, pages=pages):
                self.setUp()
                self.packed(variant=writer).run_alone("w", tokens(40))
                rig = self.packed(variant=reader, page_tokens=pages)
                request, external = self.load(rig, 40)
                self.assertEqual(external, 32)
                self.assertEqual(rig.wrong_tokens(request, 32), [])

    def test_pages_of_the_local_hit_and_those_of_others_are_not_written(self):
        self.packed({"block_tokens": 32}).run_alone("w", tokens(70))
        rig = self.packed({"block_tokens": 32})
        rig.scribble(range(32), 7)
        request, external = self.load(rig, 70, local=16)
        self.assertEqual(external, 48)
        self.assertEqual(rig.wrong_tokens(request, 64, first=16), [])
        for page in set(range(32)) - set(request.pages[0][1:4]):
            self.assertEqual(set(rig.memory[0][rig.names[0]][page]), {7})

    def test_pages_are_free_once_they_are_copied(self):
        rig = self.packed()
        request = rig.add("w", tokens(16))
        rig.ask(request)
        rig.promise(request, 0, 0)
        self.store.hold = {"put"}
        rig.step(new=[(request, 0, 16)])
        self.assertFalse(rig.finish(request))
        rig.scribble(range(32), 9)
        self.store.hold.clear()
        self.store.run()
        reader = self.packed()
        request, external = self.load(reader, 24)
        self.assertEqual((external, reader.wrong_tokens(request, 16)), (16, []))

    def test_a_lost_block_leaves_its_page_as_it_was(self):
        self.packed().run_alone("w", tokens(40))
        rig = self.packed()
        rig.scribble(range(32), 7)
        request = rig.add("r", tokens(40))
        external, _ = rig.ask(request)
        rig.promise(request, 0, external)
        self.store.lost = {rig.scheduler._scheduler._requests["r"].chain.chain.keys[5]}
        rig.step()
        self.assertEqual(rig.failed_pages, {request.pages[0][1]})
        self.assertEqual(rig.wrong_tokens(request, 16), [])
        self.assertEqual(set(rig.memory[0][rig.names[0]][request.pages[0][1]]), {7})

    def test_layers_are_saved_and_loaded_one_by_one(self):
        self.packed({"layerwise": True}).run_alone("w", tokens(40))
        rig = self.packed({"layerwise": True})
        request = rig.add("r", tokens(40))
        self.assertEqual(rig.ask(request), (32, False))
        rig.promise(request, 0, 32)
        rig.step(new=[(request, 32, 8)])
        self.assertEqual(rig.wrong_tokens(request, 40), [])

    def test_pages_that_are_not_made_of_whole_tiles_are_refused(self):
        from tokura.vllm.packing import AmxPacking

        with self.assertRaisesRegex(ValueError, "whole AMX tiles"):
            AmxPacking(2, 32, 24)
        with self.assertRaisesRegex(ValueError, "whole AMX tiles"):
            AmxPacking(2, 40, 32)


class Layouts(ContractCase):
    def test_the_engines_own_memory_pool_is_used(self):
        self.assertIsNone(self.rig().workers[0].get_mem_pool_context())

    def test_an_unknown_backend_variant_or_shape_is_refused_at_start(self):
        for settings in (
            {"backend": "NEW_ATTN"},
            {"variant": "amx"},
            {"variant": "neon"},
            {"backend": "FLASHMLA"},
        ):
            with self.assertRaisesRegex(ValueError, "not known"):
                self.rig(**settings)

    def test_layers_and_caches_of_another_kind_are_refused_at_start(self):
        for spec, words in (
            (engine.spec(engine.MambaSpec), "MambaSpec"),
            (engine.spec(kv_quant_mode="KVQuantMode.FP8_PER_TENSOR"), "quantized"),
            (engine.spec(dtype="torch.uint8"), "uint8"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                self.rig(specs=[spec])

    def test_blocks_that_neither_divide_pages_nor_are_made_of_them_are_refused(self):
        with self.assertRaisesRegex(ValueError, "block_tokens"):
            self.rig({"block_tokens": 12})

    def test_a_model_that_is_cut_by_layers_is_refused(self):
        from tokura.vllm import compat

        config, cache = engine.configs()
        config.parallel_config.pipeline_parallel_size = 2
        with self.assertRaisesRegex(ValueError, "pipeline_parallel_size"):
            compat.read_parallelism(config, cache, False)

    def test_token_major_backends_are_described_from_strides(self):
        from tokura.vllm import compat, layout

        group = compat.read_groups(engine.configs()[1])[0]
        for order in ("HND", "NHD"):
            strides = (64, 32, 4, 1) if order == "HND" else (64, 4, 8, 1)
            found = layout.find_layout("FLASH_ATTN", "", group, layout.tensor_shape(engine.Tensor((4, 2, 8, 4), strides)))
            self.assertEqual(found.k_strides, tuple(4 * s for s in strides))
            self.assertEqual(found.v_strides, found.k_strides)
            self.assertEqual(found.v_offset, 8)

    def test_k_is_channel_major_and_v_token_major_on_the_cpu(self):
        from tokura.vllm import compat, layout

        group = compat.read_groups(engine.configs()[1])[0]
        found = layout.find_layout("CPU_ATTN", "vec", group, layout.tensor_shape(engine.Tensor((4, 2, 8, 4))))
        self.assertEqual(found.k_strides, (256, 128, 4, 32))
        self.assertEqual(found.v_strides, (256, 128, 8, 4))
        self.assertEqual(found.v_offset, 64)

    def test_copies_of_pages_have_the_engines_order(self):
        from tokura.vllm.pages import _host_pages

        copy = _host_pages(engine.Tensor((4, 2, 8, 4), (64, 4, 8, 1)), 3)
        self.assertEqual((copy.shape, tuple(copy.stride())), ((3, 2, 8, 4), (64, 4, 8, 1)))


class StandIns(ContractCase):
    def test_the_client_of_these_tests_has_the_signatures_of_the_package(self):
        import fake_tokura

        sources = []
        for name in sorted(os.listdir(engine.PACKAGE)):
            if name.endswith(".py"):
                with open(os.path.join(engine.PACKAGE, name)) as source:
                    sources.append(source.read())
        self.assertEqual(fake_tokura.check_against("\n".join(sources)), [])


if __name__ == "__main__":
    unittest.main()
