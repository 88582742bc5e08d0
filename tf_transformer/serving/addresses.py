"""The address of a server: checked before anything slow starts, and written as in a URL."""

import contextlib
import socket
from collections.abc import Iterator

from tf_transformer.errors import UserError


def host_and_port(host: str, port: int) -> str:
    """Returns HOST:PORT, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def check_address(host: str, port: int) -> str:
    """Returns the host to listen on: "localhost" means 127.0.0.1 only, without IPv6.

    Raises:
        UserError: if `host` resolves to no address or to several, or the port is taken.
    """
    host = "127.0.0.1" if host == "localhost" else host
    with listening_errors(host, port):
        entries = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
        addresses = sorted({str(address[0]) for *_, address in entries})
        if len(addresses) > 1:  # each would need its own server
            raise UserError(
                f"Cannot listen on {host!r}: it resolves to {' and '.join(addresses)}. Give "
                "--host one of them, or 0.0.0.0 for every IPv4 address."
            )
        family, kind, protocol, _, address = entries[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    return host


@contextlib.contextmanager
def listening_errors(host: str, port: int) -> Iterator[None]:
    """Turns the errors of a socket that cannot listen into UserErrors."""
    try:
        yield
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        text = f"Cannot listen on {host_and_port(host, port)}: {reason}."
        raise UserError(text) from None
