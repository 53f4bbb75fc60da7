"""What tests of an application use: a deployment to test on, its clock, and handlers without a database.

The pytest plugin, which is there as soon as the package is installed, has the fixture
``pysqlbox_deployment``.
"""

from __future__ import annotations

from pysqlbox.testing.clocks import Clock, clock
from pysqlbox.testing.enqueued import assert_enqueued, enqueued
from pysqlbox.testing.inline import handle, handle_async
from pysqlbox.testing.made import message

__all__ = ["Clock", "assert_enqueued", "clock", "enqueued", "handle", "handle_async", "message"]
