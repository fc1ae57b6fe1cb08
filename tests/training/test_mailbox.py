"""When a run that keeps breaking is given up, and when not."""

from vrgd_ray.training.events import Message
from vrgd_ray.training.mailbox import Mailbox


def test_events_are_taken_once_in_order():
    mailbox = Mailbox(3)
    for text in "abc":
        mailbox.put(Message(text=text))
    assert [event.text for event in mailbox.take()] == ["a", "b", "c"]
    assert mailbox.take() == []


def test_a_run_that_gets_no_further_is_given_up():
    mailbox = Mailbox(max_failures=2)
    assert [mailbox.begin(40, 2) for _ in range(4)] == [True, True, True, False]


def test_a_run_that_gets_on_may_fail_as_often_as_it_likes():
    mailbox = Mailbox(max_failures=1)
    assert all(mailbox.begin(step, 2) for step in range(0, 100, 5) for _ in range(2))


def test_growing_is_no_failure_and_shrinking_in_place_is():
    mailbox = Mailbox(max_failures=1)
    assert [mailbox.begin(0, workers) for workers in (1, 2, 4, 8)] == [True] * 4
    assert [mailbox.begin(0, workers) for workers in (7, 6)] == [True, False]


def test_a_refusal_ends_the_run_at_once_and_its_reason_stays():
    mailbox = Mailbox(max_failures=3)
    assert mailbox.begin(0, 2)
    mailbox.fail("the checkpoint is of another recipe", hopeless=True)
    mailbox.fail("RuntimeError: connection closed by peer", hopeless=False)
    assert not mailbox.begin(0, 2)
    assert mailbox.failure() == ("the checkpoint is of another recipe", True)


def test_the_last_reason_is_kept():
    mailbox = Mailbox(max_failures=3)
    assert mailbox.failure() == (None, False)
    mailbox.fail("first", hopeless=False)
    mailbox.fail("second", hopeless=False)
    assert mailbox.failure() == ("second", False)
