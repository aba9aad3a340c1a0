from hypothesis import given
from hypothesis import strategies as st

from memra.gate.keys import DEFAULT_TENANT
from memra.gate.namespaces import namespace_of

salts = st.text("ABCabc019-_.+/=", max_size=64)
tenants = st.just(DEFAULT_TENANT) | st.text("ABCabc019-_", min_size=1)


def test_on_an_open_server_the_salt_is_the_namespace():
    assert namespace_of(DEFAULT_TENANT, "") == ""
    assert namespace_of(DEFAULT_TENANT, "x") == "x"
    assert namespace_of("acme", "x") == "t:acme\x1fx"


@given(st.tuples(tenants, salts), st.tuples(tenants, salts))
def test_two_callers_share_a_namespace_only_if_tenant_and_salt_are_the_same(one: tuple, other: tuple):
    assert (namespace_of(*one) == namespace_of(*other)) == (one == other)
