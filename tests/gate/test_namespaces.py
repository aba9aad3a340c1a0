from hypothesis import given
from hypothesis import strategies as st

from memra.engine.host_shares import tenant_of
from memra.gate.namespaces import namespace_of
from memra.messages.identity import ANYBODY, DEFAULT_TENANT, Identity

salts = st.text("ABCabc019-_.+/=", max_size=64)
tenants = st.builds(
    Identity,
    st.just(DEFAULT_TENANT) | st.text("ABCabc019-_", min_size=1),
    st.none() | st.just("key"),
    is_named=st.just(True),
)


def test_on_an_open_server_the_salt_is_the_namespace():
    assert namespace_of(ANYBODY, "") == ""
    assert namespace_of(ANYBODY, "x") == "x"


def test_a_tenants_namespace_is_its_own_whatever_the_client_salts():
    assert namespace_of(Identity("acme", is_named=True), "x") == "t:acme\x1fx"
    assert namespace_of(Identity(DEFAULT_TENANT, is_named=True), "x") == "t:default\x1fx"


def test_a_tenant_that_nobody_vouched_for_still_has_a_namespace_of_its_own():
    assert namespace_of(Identity("acme"), "") == "t:acme\x1f"


@given(st.tuples(tenants, salts), st.tuples(tenants, salts))
def test_two_callers_share_a_namespace_only_if_tenant_and_salt_are_the_same(one: tuple, other: tuple):
    is_same = (one[0].tenant, one[1]) == (other[0].tenant, other[1])
    assert (namespace_of(*one) == namespace_of(*other)) == is_same
    assert tenant_of(namespace_of(*one)) == one[0].tenant
