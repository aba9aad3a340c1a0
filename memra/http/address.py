"""Where to listen: turns `host:port` into a bound socket, or into one clear line.

Refuses to know what is served. Called by the composition root before anything slow is loaded, so that a taken port is
reported at once; the socket does not accept connections before `memra.http.serve.serve` runs.
"""

import contextlib
import errno
import ipaddress
import os
import socket

from memra.errors import AddressError

_REMEDIES = {
    errno.EADDRINUSE: "the address is in use; stop the other server or choose another port",
    errno.EACCES: "no permission; choose a port from 1024 up",
    errno.EPERM: "no permission; choose a port from 1024 up",
    errno.EADDRNOTAVAIL: "this machine has no such address; use one of its own, or 0.0.0.0 for all",
    errno.EAFNOSUPPORT: "this machine does not speak that address family; use an IPv4 address",
}
_MAX_PORT = 65535


def bind(address: str) -> socket.socket:
    """Bind a TCP socket to an address, without listening yet.

    Args:
        address: `host:port`; an IPv6 host in brackets; port 0 takes a free one.

    Returns:
        A non-blocking socket that the caller closes; `serve` closes it too.

    Raises:
        AddressError: the text is no address, the host is unknown, or the system refuses it.
    """
    host, port = _split(address)
    try:
        family, _, _, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_NUMERICSERV
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise AddressError(f"Cannot listen on {address}: the host name {host!r} is unknown.") from error
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restarted server must not wait for the old connections' TIME_WAIT to pass.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.bind(target)
    except OSError as error:
        listener.close()
        raise address_error(address, error) from error
    listener.setblocking(False)
    return listener


def bind_loopback(address: str) -> socket.socket:
    """Bind as `bind` does, where nothing but this machine itself can come in.

    Raises:
        AddressError: as `bind`; or the host has an address that is not loopback.
    """
    host, port = _split(address)
    with contextlib.suppress(socket.gaierror, UnicodeError):  # `bind` says so
        for *_, target in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE):
            if not ipaddress.ip_address(str(target[0]).partition("%")[0]).is_loopback:
                raise AddressError(
                    f"Cannot listen on {address} for administration: {target[0]} is not loopback; use 127.0.0.1, and "
                    "a tunnel from elsewhere."
                )
    return bind(address)


def address_of(listener: socket.socket) -> str:
    """Return the address of a bound socket as `host:port`, with the real port."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if listener.family == socket.AF_INET6 else f"{host}:{port}"


def address_error(address: str, error: OSError) -> AddressError:
    """Say in one line why the system refused an address."""
    reason = _REMEDIES.get(error.errno or 0) or os.strerror(error.errno or errno.EIO)
    return AddressError(f"Cannot listen on {address}: {reason}.")


def _split(address: str) -> tuple[str, int]:
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    is_number = port.isascii() and port.isdigit()
    if not (colon and host and is_number and int(port) <= _MAX_PORT) or (":" in host and not is_bracketed):
        raise AddressError(
            f"Cannot listen on {address!r}: write it as host:port, such as 127.0.0.1:8080 or [::1]:8080, "
            f"with a port from 0 to {_MAX_PORT}."
        )
    return host.strip("[]"), int(port)
