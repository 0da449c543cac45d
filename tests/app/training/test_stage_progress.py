"""The progress of training a network."""

import pytest

from app.training.stage_progress import PARTS, read_share, seconds_left, share_done, write_share


def test_the_parts_add_up_in_their_order():
    assert sum(PARTS.values()) == pytest.approx(1.0)
    shares = [share_done(part, done, 4) for part in PARTS for done in range(4)]
    assert shares == sorted(shares)
    assert (shares[0], share_done("last memory", 4, 4)) == (0.0, pytest.approx(1.0))


def test_the_rest_is_estimated_by_what_it_took_so_far():
    assert seconds_left(0.25, 30.0) == 90.0
    assert seconds_left(1.0, 30.0) == 0.0
    assert seconds_left(0.0, 30.0) is None


def test_another_process_reads_what_was_written_last(tmp_path):
    assert read_share(tmp_path) == 0.0
    write_share(tmp_path, "context", 1, 2)
    assert read_share(tmp_path) == pytest.approx(PARTS["context"] / 2)
    (tmp_path / "share.txt").write_text("")  # while it is being written
    assert read_share(tmp_path) == 0.0
