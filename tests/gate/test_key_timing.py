from tests.gate.key_timing import measure


def test_every_kind_of_wrong_key_is_measured():
    medians = measure(5, num_keys=3)
    assert set(medians) == {"keyring of 3", "single key"}
    for kinds in medians.values():
        assert len(kinds) == 5
        assert min(kinds.values()) > 0
