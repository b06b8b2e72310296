"""Finds the network interface by which this machine reaches the others of a run.

By default gloo listens at the address of this machine's own name. On many machines that is 127.0.0.1, and the
others connect to themselves: one rank fails, the rest wait. So gloo gets the interface that leads to machine 0.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from grpo_cli.errors import SetupError

INTERFACE = "GLOO_SOCKET_IFNAME"
SIOCGIFADDR = 0x8915
ELSEWHERE = "192.0.2.1"
"""An address of no machine (RFC 5737): the way there is the default route."""


def interface_settings(rendezvous: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables with which gloo listens at an address that the machines at `rendezvous` (`host:port`) can
    reach.

    Raises:
        SetupError: the host has no address or no way leads there, or the user's own choice is no interface of ours.
    """
    host, _, port = rendezvous.rpartition(":")
    own = own_address(host, int(port))
    if chosen := environ.get(INTERFACE):
        here = [name for _, name in socket.if_nameindex()]
        if missing := [name for name in chosen.split(",") if name not in here]:
            raise SetupError(
                f"`{INTERFACE}` names `{missing[0]}`, which this machine does not have",
                hint=f"it has {', '.join(here)}; left unset, the one that leads to `{host}` is taken",
            )
        return {}
    if is_own(own):  # machine 0's name for itself: take the way out
        with suppress(SetupError):
            own = own_address(ELSEWHERE, 1)
    v6 = list[list[str]]()
    with suppress(OSError):
        v6 = [line.split() for line in Path("/proc/net/if_inet6").read_text(encoding="utf-8").splitlines()]
    for _, name in socket.if_nameindex():
        # of IPv4 the kernel names only the first address of an interface; where it is another, gloo is left alone
        here = [str(ipaddress.IPv6Address(bytes.fromhex(fields[0]))) for fields in v6 if fields[5] == name]
        with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            request = struct.pack("256s", name.encode()[:15])
            here.append(socket.inet_ntoa(fcntl.ioctl(any_socket, SIOCGIFADDR, request)[20:24]))
        if own in here:
            return {INTERFACE: name}
    return {}


def own_address(host: str, port: int) -> str:
    """The address that this machine has towards `host`; nothing is sent.

    Raises:
        SetupError: the name does not resolve, or there is no route.
    """
    failed = "it has no address"
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except OSError as err:
        raise SetupError(
            f"`launch.rendezvous`: this machine does not know the host `{host}` ({err.strerror})",
            hint="give machine 0's address as the others see it, such as `10.0.0.1:29500`",
        ) from err
    for family, kind, _, _, place in places:
        try:
            with socket.socket(family, kind) as way:
                # of a datagram socket: the kernel only looks up the route
                way.connect(place)
                return str(way.getsockname()[0])
        except OSError as err:
            failed = str(err.strerror)
    raise SetupError(
        f"`launch.rendezvous`: no way leads from this machine to `{host}` ({failed})",
        hint="is the network up? `ip route get` with its address shows more",
    )


def check_port_free(rendezvous: str) -> None:
    """On machine 0, before torchrun: the others meet at a port that it listens at itself.

    Raises:
        SetupError: something else listens there, or this user may not.
    """
    port = int(rendezvous.rpartition(":")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a run that ended here just now is no listener
        try:
            door.bind(("", port))
        except OSError as err:
            taken = err.errno == errno.EADDRINUSE
            raise SetupError(
                f"`launch.rendezvous`: machine 0 cannot listen at port {port}: {(err.strerror or str(err)).lower()}",
                hint=f"`ss -ltnp 'sport = :{port}'` shows what does; end it, or give all machines another port"
                if taken
                else "ports from 1024 on need no rights; give all machines another one",
            ) from err


def is_own(address: str) -> bool:
    """Whether an address means the machine that uses it, so that no other can reach it there."""
    return ipaddress.ip_address(address.partition("%")[0]).is_loopback
