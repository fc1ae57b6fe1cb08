"""When a run that keeps breaking is given up, and when not."""

from vrgd_ray.training.events import Message
from vrgd_ray.training.mailbox import Mailbox


def starts(mailbox, steps, num_workers=2):
    """Start groups that find checkpoints of these steps; whether each may."""
    return [mailbox.begin(step, num_workers) for step in steps]


def test_events_are_taken_once_in_order():
    mailbox = Mailbox(3)
    for text in "abc":
        mailbox.put(Message(text=text))
    assert [event.text for event in mailbox.take()] == ["a", "b", "c"]
    assert mailbox.take() == []


def test_a_run_that_gets_no_further_is_given_up():
    assert starts(Mailbox(max_failures=2), [40, 40, 40, 40]) == [True, True, True, False]


def test_a_run_that_gets_on_may_fail_as_often_as_it_likes():
    assert all(starts(Mailbox(max_failures=1), [step for step in range(0, 100, 5) for _ in range(2)]))


def test_growing_is_no_failure_and_shrinking_in_place_is():
    mailbox = Mailbox(max_failures=1)
    assert [mailbox.begin(0, workers) for workers in (1, 2, 4, 8)] == [True] * 4
    assert [mailbox.begin(0, workers) for workers in (7, 6)] == [True, False]


def test_a_refusal_ends_the_run_at_once_and_its_reason_stays():
    mailbox = Mailbox(max_failures=3)
    assert mailbox.begin(0, 2)
    mailbox.fail("the checkpoint is of another recipe", hopeless=True, own=True)
    mailbox.fail("RuntimeError: connection closed by peer", hopeless=False, own=False)
    assert not mailbox.begin(0, 2)
    assert mailbox.given_up
    assert mailbox.failure() == "the checkpoint is of another recipe"


def test_the_same_error_of_the_program_twice_is_enough():
    mailbox = Mailbox(max_failures=3)
    for answer in (True, True, False):
        assert mailbox.begin(10, 2) is answer
        mailbox.fail("ValueError: broken", hopeless=False, own=True)
        mailbox.fail("RuntimeError: connection closed by peer", hopeless=False, own=False)
    assert mailbox.failure() == "ValueError: broken"


def test_the_same_error_of_several_workers_at_one_start_counts_once():
    mailbox = Mailbox(max_failures=3)
    for answer in (True, True, False):
        assert mailbox.begin(10, 2) is answer
        for _ in range(2):
            mailbox.fail("OSError: the data cannot be read", hopeless=False, own=True)


def test_an_error_that_comes_again_after_progress_is_tried_again():
    mailbox = Mailbox(max_failures=3)
    for step in (10, 20, 30):
        assert mailbox.begin(step, 2)
        mailbox.fail("OSError: the data cannot be read", hopeless=False, own=True)


def test_lost_connections_are_counted_and_not_compared():
    mailbox = Mailbox(max_failures=3)
    for answer in (True, True, True, True, False):
        assert mailbox.begin(10, 2) is answer
        mailbox.fail("RuntimeError: connection closed by peer", hopeless=False, own=False)
