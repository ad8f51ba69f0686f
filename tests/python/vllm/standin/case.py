"""Base of the contract's test cases: stand-ins installed, a fresh store per test."""

import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import engine  # noqa: E402
import fake_tokura  # noqa: E402

if "tokura" not in sys.modules:
    engine.install()


class ContractCase(unittest.TestCase):
    """Each test has its own store; the rig of a test runs the connector against it."""

    def setUp(self):
        self.store = fake_tokura.store = fake_tokura.Store()
        fake_tokura.Client.made.clear()

    def rig(self, options=None, **settings):
        """An engine."""
        rig = engine.Rig(options, **settings)
        self.addCleanup(self._close, rig)
        return rig

    def _close(self, rig):
        self.store.hold.clear()
        self.store.run()
        for connector in (*rig.workers, rig.scheduler):
            connector.shutdown()


def tokens(count, first=0):
    """Token ids that name their place."""
    return [first + i for i in range(count)]
