from memra.gate.bookings import Bookings
from memra.gate.queueing import Ahead, Placement, WaitCause
from memra.types import Lane, ModelName, RequestId

MODEL, OTHER = ModelName("a"), ModelName("b")
A, B, C = RequestId("a"), RequestId("b"), RequestId("c")


def test_a_request_stands_until_the_second_reading_after_it():
    bookings = Bookings()
    bookings.add(A, Placement(5, 10), model=MODEL, lane=Lane.INTERACTIVE, reading=7)
    for reading in (7, 8):
        assert bookings.ahead(MODEL, Lane.HARVEST, reading=reading) == Ahead(1, 5, 0)
    assert bookings.ahead(MODEL, Lane.HARVEST, reading=9) == Ahead()
    assert len(bookings) == 0


def test_a_request_that_ended_does_not_stand_any_more():
    bookings = Bookings()
    bookings.add(A, Placement(5, 10), model=MODEL, lane=Lane.INTERACTIVE, reading=0)
    bookings.drop(A)
    bookings.drop(A)
    assert bookings.ahead(MODEL, Lane.INTERACTIVE, reading=0) == Ahead()


def test_only_the_same_model_and_better_lanes_come_first_but_a_lane_is_one_queue():
    bookings = Bookings()
    bookings.add(A, Placement(5, 10, WaitCause.ROW, 1.0), model=MODEL, lane=Lane.HARVEST, reading=0)
    bookings.add(B, Placement(7, 10, WaitCause.ROW, 1.0), model=OTHER, lane=Lane.INTERACTIVE, reading=0)
    bookings.add(C, Placement(0, 0), model=MODEL, lane=Lane.INTERACTIVE, reading=0)
    assert bookings.ahead(MODEL, Lane.INTERACTIVE, reading=0) == Ahead(0, 0, 1)
    assert bookings.ahead(OTHER, Lane.INTERACTIVE, reading=0) == Ahead(1, 7, 1)
    assert bookings.ahead(MODEL, Lane.HARVEST, reading=0) == Ahead(1, 5, 1)
