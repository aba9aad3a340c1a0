"""Who is taken for dead, and who is not."""

import os
import subprocess
import sys

import pytest
from memra_metering_ledger import owners
from memra_metering_ledger.errors import ReceiptEndedError
from memra_metering_ledger.owners import Process, Watch

from memra.plugins import UsageCounts
from memra.types import ModelName

ELSEWHERE = Process(place="another machine", pid=1, started_ticks=1)


def test_this_process_is_not_dead():
    assert not Process.this().is_surely_dead()


def test_a_process_that_ended_here_is_dead():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        process = Process(Process.this().place, child.pid, owners._started_ticks(child.pid))
        assert not process.is_surely_dead()
        child.stdin.close()
    assert process.is_surely_dead()


def test_a_process_that_waits_to_be_reaped_is_dead():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = Process(Process.this().place, child.pid, owners._started_ticks(child.pid))
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert process.is_surely_dead()
    child.wait()


def test_another_process_of_the_same_number_is_not_taken_for_it():
    this = Process.this()
    assert Process(this.place, this.pid, this.started_ticks - 1).is_surely_dead()


def test_a_process_elsewhere_is_judged_by_its_beat_alone():
    assert not ELSEWHERE.is_surely_dead()
    watch = Watch(lease_s=30)
    others = {"other": ELSEWHERE}
    assert watch.find_dead({"other": 7}, others, now_s=100) == []
    assert watch.find_dead({"other": 7}, others, now_s=129.9) == []
    assert watch.find_dead({"other": 8}, others, now_s=130) == []
    assert watch.find_dead({"other": 8}, others, now_s=159.9) == []
    assert watch.find_dead({"other": 8}, others, now_s=160) == ["other"]


@pytest.fixture
def silent(books):
    """Give a server elsewhere, and one that watches it."""
    books.credit("acme", "1")
    server = books.server()
    server._housekeeper.process = ELSEWHERE
    with books.database.write() as connection:
        connection.execute(owners.owners.update().values(place=ELSEWHERE.place, pid=1, started_ticks=1))
    return server, books.server()


def test_a_server_that_falls_silent_loses_what_it_held(books, silent, meta):
    server, watcher = silent
    permit = server.reserve("acme", principal="k", model=ModelName("tiny"), prompt_tokens=9, completion_bound=9)
    unopened = server.reserve("acme", principal="k", model=ModelName("tiny"), prompt_tokens=9, completion_bound=9)
    receipt = server.open(meta("r1", principal="k"), permit)
    watcher._housekeeper.look_after()
    assert len(books.holds()) == 2
    watcher._housekeeper.watch.lease_s = 0
    watcher._housekeeper.look_after()
    assert books.holds() == []
    assert books.receipt("r1").outcome == "crashed"
    with pytest.raises(ReceiptEndedError):  # it lives after all; but its client must not be told that all went well
        receipt.complete(UsageCounts(9, 0, 9), elapsed_s=1)
    server._housekeeper.look_after()
    with pytest.raises(ReceiptEndedError):
        server.open(meta("r2", principal="k"), unopened)


def test_a_server_that_was_taken_for_dead_goes_on_after_its_next_round(books, silent):
    server, watcher = silent
    watcher._housekeeper.watch.lease_s = 0
    watcher._housekeeper.look_after()
    watcher._housekeeper.watch.lease_s = 30
    server._housekeeper.look_after()
    server.reserve("acme", principal=None, model=ModelName("tiny"), prompt_tokens=9, completion_bound=9).refund()
    assert books.account("acme")[1] == 0


def test_a_server_that_stops_leaves_nothing_open(books, meta):
    books.credit("acme", "1")
    server = books.server()
    permit = server.reserve("acme", principal=None, model=ModelName("tiny"), prompt_tokens=9, completion_bound=9)
    receipt = server.open(meta("r1"), permit)
    server._housekeeper.start()
    server.stop()
    assert books.account("acme")[1] == 0
    assert books.receipt("r1").outcome == "crashed"
    with pytest.raises(ReceiptEndedError):
        receipt.complete(UsageCounts(9, 0, 9), elapsed_s=1)
