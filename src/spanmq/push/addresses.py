"""The addresses that a request may go to: public ones, and those that are allowed.

They are checked where the socket is made, after the name was resolved: no later answer of a DNS server, and no number
in a URL, leads elsewhere.
"""

import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, Final

from spanmq.errors import InvalidArgumentError

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The only block of IPv6 that is assigned to the public internet. Outside of it, and in 6to4, are addresses of IPv4 that
# are written as IPv6.
PUBLIC_V6: Final = ipaddress.IPv6Network("2000::/3")
SIX_TO_FOUR: Final = ipaddress.IPv6Network("2002::/16")


class AddressRefusedError(PermissionError):
    """A host has an address that is neither public nor allowed."""


class Guard:
    """Makes sockets for public addresses, and for those in `allowed` networks, such as `10.0.0.0/8`.

    Raises InvalidArgumentError for a text that is not a network.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed = [_network(network) for network in allowed]

    def socket_for(self, address_info: tuple[Any, ...]) -> socket.socket:
        """Return a new socket for a connection to an address, as `getaddrinfo` describes it.

        Raises AddressRefusedError for one that is neither public nor allowed.
        """
        family, kind, protocol, _, place = address_info
        address = ipaddress.ip_address(place[0])
        if not (is_public(address) or any(address in network for network in self._allowed)):
            raise AddressRefusedError(f"the address {address} is private, and not allowed")
        return socket.socket(family, kind, protocol)


def is_public(address: Address) -> bool:
    """Return whether an address belongs to the public internet, and to a single host."""
    if isinstance(address, ipaddress.IPv6Address) and (address not in PUBLIC_V6 or address in SIX_TO_FOUR):
        return False
    return address.is_global and not address.is_multicast


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"an allowed network is written as 10.0.0.0/8 or 127.0.0.1, got {text!r}: {error}"
        ) from error
