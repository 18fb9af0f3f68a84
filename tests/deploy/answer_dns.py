#!/usr/bin/env python3
"""Answers DNS queries over UDP: one name has one IPv4 address, and nothing else exists.

Usage: answer_dns.py ADDRESS NAME IPV4

Listens on port 53 of ADDRESS, and runs until it is ended.
"""

import ipaddress
import socket
import struct
import sys

TYPE_A = 1
NO_ERROR, NO_SUCH_NAME = 0, 3
HEADER_BYTES = 12


def question(query):
    """Returns the name, the type, and the bytes of the one question of `query`."""
    labels, at = [], HEADER_BYTES
    while query[at] != 0:
        labels.append(query[at + 1 : at + 1 + query[at]].decode().lower())
        at += 1 + query[at]
    (kind,) = struct.unpack_from(">H", query, at + 1)
    return ".".join(labels), kind, query[HEADER_BYTES : at + 5]


def answer(query, known_name, address):
    name, kind, asked = question(query)
    records = b""
    if name == known_name and kind == TYPE_A:
        # A pointer to the name in the question, type A, class IN, 60 s.
        records = struct.pack(">HHHIH", 0xC00C, TYPE_A, 1, 60, 4) + address.packed
    code = NO_ERROR if name == known_name else NO_SUCH_NAME
    flags = 0x8580 | code  # a response, authoritative, recursion desired and available
    return query[:2] + struct.pack(">HHHHH", flags, 1, 1 if records else 0, 0, 0) + asked + records


def main(listen, known_name, address):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((listen, 53))
    while True:
        query, client = server.recvfrom(512)
        server.sendto(answer(query, known_name, ipaddress.IPv4Address(address)), client)


if __name__ == "__main__":
    main(*sys.argv[1:])
