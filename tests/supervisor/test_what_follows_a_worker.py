"""Promise: the end of a worker, and the blocks that are committed, decide what follows."""

from __future__ import annotations

import resource
import signal

import pytest
from supervisors import Supervise
from waiting import kill_wholly

# A worker that ends by itself


@pytest.mark.parametrize("code", [0, 1, 2, 75, 130])
def test_a_code_of_its_own_is_the_code(supervise: Supervise, code: int) -> None:
    supervising = supervise(f"work = lambda pipe, spec, number: {code}")
    assert supervising.kinds() == ["ended"]
    assert supervising.code == code


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (2, 75), (75, 75)])
def test_a_later_worker_that_is_refused_leaves_a_run_that_can_be_resumed(
    supervise: Supervise, code: int, expected: int
) -> None:
    supervising = supervise(f"""
        committed += [0]
        def work(pipe, spec, number):
            if number == 1:
                pipe.tell(run="a run")
                die()
            pipe.tell(refusal="the recipe changed")
            return {code}
    """)
    assert supervising.kinds() == [
        "recorded", "died", *["refused"] * (code == 2), "ended"
    ]  # fmt: skip
    assert supervising.code == expected
    for refused in supervising.of("refused"):
        assert (refused["run"], refused["why"]) == ("a run", "the recipe changed")


# A worker that was killed


def test_the_next_worker_resumes_the_run_that_is_known(supervise: Supervise) -> None:
    """The run stays known if a later worker dies before it reports its run."""
    supervising = supervise("""
        committed += [0, 0]
        def work(pipe, spec, number):
            if number == 2:
                pipe.tell(run="a run", budget=100)
            if number < 4:
                die()
    """)
    supervising.end()
    assert [said["run"] for said in supervising.of("works")] == [None, None, "a run", "a run"]
    assert [said["memory"] for said in supervising.of("works")] == [None] * 4
    died = supervising.of("died")
    assert [(said["cause"], said["signum"]) for said in died] == [("killed", 9)] * 3
    assert [said["run"] for said in died] == [None, "a run", "a run"]
    assert [said["budget"] for said in died] == [None, 100, None]
    [recorded] = supervising.of("recorded")
    assert (recorded["ledger"], recorded["cause"]) == ("ledger of a run", "killed")
    assert supervising.code == 0


def test_the_memory_that_a_worker_had_at_most_is_recorded(supervise: Supervise) -> None:
    supervising = supervise("""
        committed += [0]
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            if number == 1:
                taken = bytearray(os.urandom(1)) * 80_000_000
                pass_time(0.4)
                del taken
                pass_time(0.2)
                die()
    """)
    supervising.end()
    assert 80e6 < supervising.of("recorded")[0]["peak"] < 200e6


@pytest.mark.parametrize(
    ("signum", "cause"),
    [(signal.SIGSEGV, "crash"), (signal.SIGABRT, "crash"), (signal.SIGTERM, "killed")],
)
def test_the_cause_of_a_death_is_its_signal(supervise: Supervise, signum: int, cause: str) -> None:
    supervising = supervise(f"""
        import faulthandler, resource
        OOM += [True]
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        def work(pipe, spec, number):
            if number == 1:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
                die({int(signum)})
    """)
    supervising.end()
    [died] = supervising.of("died")
    assert (died["cause"], died["signum"]) == (cause, signum), "no other is the kernel's"


def test_after_a_kill_for_want_of_memory_the_budget_is_half_of_what_it_had(
    supervise: Supervise,
) -> None:
    """The budget stays at least what one thread needs, or what the worker had, if that is less."""
    supervising = supervise("""
        OOM += [True, True, False, True, False]
        committed += [0, 0, 1, 2]
        budgets = [1000, 400, 150, 90]
        def work(pipe, spec, number):
            if number < 5:
                pipe.tell(run="a run", floor=120)
                pipe.tell(budget=budgets[number - 1])
                die()
    """)
    supervising.end()
    assert [said["memory"] for said in supervising.of("works")] == [None, 500, 200, 200, 90]
    died, works = supervising.of("died"), supervising.of("works")
    assert [said["cause"] for said in died] == ["oom", "oom", "killed", "oom"]
    pauses = [begun["at"] - ended["at"] for ended, begun in zip(died, works[1:])]
    assert pauses == [0, 1, 0, 0], "the second in a row without progress"


def test_six_in_a_row_without_progress_are_enough(supervise: Supervise) -> None:
    supervising = supervise("""
        committed += [5, 5, 3, 5, 4, 5]
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            die(signal.SIGSEGV)
    """)
    assert supervising.kinds("recorded") == ["died"] * 5 + ["gave up", "ended"]
    [given_up] = supervising.of("gave up")
    assert (given_up["cause"], given_up["run"]) == ("crash", "a run")
    assert supervising.code == 75


def test_progress_is_what_no_worker_had_committed_before(supervise: Supervise) -> None:
    supervising = supervise("""
        committed += [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2]
        def work(pipe, spec, number):
            pipe.tell(run="a run")
            if number < 12:
                die()
    """)
    supervising.end()
    assert len(supervising.of("works")) == 12
    assert supervising.code == 0


def test_workers_that_die_before_there_is_a_run_are_counted(supervise: Supervise) -> None:
    supervising = supervise("work = lambda pipe, spec, number: die()")
    assert supervising.kinds() == ["died"] * 5 + ["gave up", "ended"]
    assert supervising.of("gave up")[0]["run"] is None


# A worker that makes no progress


def test_a_worker_that_stalls_is_killed_and_the_next_has_its_own_time(
    supervise: Supervise,
) -> None:
    supervising = supervise(
        """
        def work(pipe, spec, number):
            pipe.tell(budget=100)
            pass_time(FOREVER if number < 3 else 0.3)
    """,
        stall=0.5,
    )
    supervising.end()
    assert supervising.code == 0
    died = supervising.of("died")
    assert [(said["cause"], said["signum"], said["budget"]) for said in died] == [
        ("stall", 9, 100)
    ] * 2
    begun = [said["at"] for said in supervising.of("works")]
    for start, death in zip(begun, died):
        assert death["seconds"] > 0.5
        assert death["at"] - start > 0.5
    assert begun[2] == died[1]["at"], "a stall is no want of memory"


def test_a_heartbeat_is_progress_and_what_is_printed_is_none(supervise: Supervise) -> None:
    supervising = supervise(
        """
        def work(pipe, spec, number):
            for _ in range(8):
                os.write(pipe._fd, b"\\n")
                pass_time(0.2)
            if number == 1:
                for _ in range(20):
                    pipe.tell(printed_at=time.monotonic())
                    pass_time(0.2)
    """,
        stall=0.8,
    )
    supervising.end()
    assert [said["cause"] for said in supervising.of("died")] == ["stall"]
    alive = supervising.of("alive")
    first, second = (said["pid"] for said in supervising.of("started"))
    assert max(said["printed_at"] for said in alive if said["pid"] == first) > 0
    assert max(said["printed_at"] for said in alive if said["pid"] == second) == 0
    assert max(said["quiet"] for said in alive if said["pid"] == second) < 0.8
    assert max(said["quiet"] for said in alive if said["pid"] == first) > 0.8


def test_the_time_of_a_worker_begins_when_it_is_started(supervise: Supervise) -> None:
    supervising = supervise("""
        supervisor.LOOK_SECONDS = 3.0
        def work(pipe, spec, number):
            pipe.tell(printed_at=1.0)
            pass_time(0.5)
    """)
    supervising.end()
    assert supervising.of("alive")[0]["quiet"] < 2


def test_without_a_limit_no_worker_stalls(supervise: Supervise) -> None:
    supervising = supervise("work = lambda pipe, spec, number: pass_time(10)", stall=0)
    assert supervising.kinds() == ["ended"]


def test_time_in_which_the_supervisor_was_suspended_does_not_count(supervise: Supervise) -> None:
    supervising = supervise(
        """
        def work(pipe, spec, number):
            pass_time(1.0)
            clock.skip_time(3.0)
            pass_time(0.5)
    """,
        stall=2.0,
    )
    assert supervising.kinds() == ["ended"]
    assert 1.5 < max(said["quiet"] for said in supervising.of("alive")) < 2.0


def test_a_worker_that_cannot_be_killed_is_left(supervise: Supervise) -> None:
    program = "send_no_kills()\nwork = lambda pipe, spec, number: pass_time(FOREVER)"
    supervising = supervise(program, stall=0.2)
    kinds = supervising.kinds("kills")
    assert kinds == ["hangs", "ended"]
    assert supervising.code == 75
    assert supervising.of("hangs")[0]["cause"] == "stall"
    assert supervising.of("kills")
    kill_wholly([supervising.of("works")[0]["pid"]])


# What a worker is started with


def test_a_worker_has_its_own_group_and_no_file_of_its_supervisor(supervise: Supervise) -> None:
    supervising = supervise("""
        def work(pipe, spec, number):
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                     if os.path.exists(f"/proc/self/fd/{fd}")]
            say("facts", group=os.getpgrp() == os.getpid(), blocked=sorted(blocked),
                pipes=len([link for link in links if link.startswith("pipe:")]))
    """)
    supervising.end()
    [facts] = supervising.of("facts")
    assert facts["group"]
    assert facts["blocked"] == [signal.SIGHUP, signal.SIGINT, signal.SIGTERM]
    assert facts["pipes"] == 3, "stdout, the heartbeat pipe, and the one that tells of a death"


def test_a_worker_that_raises_ends_with_1(supervise: Supervise) -> None:
    supervising = supervise("def work(pipe, spec, number): raise ValueError('a bug')")
    assert supervising.kinds() == ["ended"]
    assert supervising.code == 1


def test_what_was_printed_before_is_printed_once(supervise: Supervise) -> None:
    """A fork copies the buffer of stdout, and each process would print it at its end."""
    supervising = supervise("""
        import sys
        sys.stdout = open(1, "w", closefd=False)  # with a buffer, whatever the environment says
        print('{"what": "printed"}')
        def work(pipe, spec, number):
            sys.stdout.flush()
            if number == 1:
                die()
    """)
    supervising.end()
    assert len(supervising.of("printed")) == 1


@pytest.mark.skipif(
    0 <= resource.getrlimit(resource.RLIMIT_NOFILE)[1] < 1200,
    reason="the system allows no process more than 1,200 open files",
)
def test_a_process_with_many_open_files_supervises_too(supervise: Supervise) -> None:
    """`select` supports only descriptors below 1,024; a notebook's process may have more."""
    supervising = supervise("""
        import resource
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (1200, most))
        for _ in range(1100):
            os.open("/dev/null", os.O_RDONLY)
        clock.remove()
        def work(pipe, spec, number):
            time.sleep(0.3)
            return 0
    """)
    assert supervising.kinds() == ["ended"]
