"""Our side of `control.py`: the reservation server with the bookkeeping of a feed, or nodes that speak its protocol."""

from __future__ import annotations

import heapq
import json
import os
import random
import resource
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tfos_core.cluster_report import ClusterReport
from tfos_core.events import to_line
from tfos_core.feed.coordinator import FeedCoordinator
from tfos_core.feed.epoch import Epoch
from tfos_core.feed.hub import report_interval_s
from tfos_core.feed.ledger import Ledger
from tfos_core.node_news import NodeNews
from tfos_core.node_table import NodeTable
from tfos_core.options import ClusterOptions
from tfos_core.reservation import NodeRecord, Right, Server
from tfos_core.reservation.framing import Decoder, encode_frame, frame_header
from tfos_core.reservation.handshake import SEAL_BYTES, ClientHandshake
from tfos_core.reservation.messages import MESSAGE_LIMIT_BYTES, Op, decode_message, encode_message
from tfos_core.reservation.record import inflated
from tfos_core.reservation.tcp import RECEIVE_BYTES, tune
from tfos_core.tensorboard.board import ClusterBoard
from tfos_core.topology import ClusterPlan, InputMode, Role

_LINE_S = 10.0


def serve(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A server; tells what it costs when it is asked."""
    before_s, before_mib = time.process_time(), _memory_mib()
    news, names = _news(settings["nodes"])
    with Server(names, on_message=news.on_message, on_registered=news.on_registered, on_disconnect=news.on_disconnect) as server:
        yield {"host": server.address[0], "port": server.address[1], "secret": server.secret.hex()}
        for _ in sys.stdin:
            yield {"cpu_s": time.process_time() - before_s, "mib": _memory_mib() - before_mib}


class Unmoved:
    """A listener for failures, of which there are none."""

    def noticed(self, failure: Any) -> None:
        """Nobody waits for it."""


def _news(nodes: int) -> tuple[NodeNews, list[str]]:
    """What a driver does with messages, in the middle of an epoch of four partitions a node; events become lines of JSON."""
    plan = ClusterPlan.build(nodes)
    names = [slot.name for slot in plan.slots]
    options = ClusterOptions(on_event=to_line, on_output=lambda node, lines: json.dumps(lines))
    board = ClusterBoard(options.tensorboard, node="", sink=None, emit=options.on_event)
    news = NodeNews(NodeTable(plan, InputMode.SPARK), Unmoved(), options, ClusterReport(), board)
    news.feed = FeedCoordinator(names, lambda node, message: None, options.on_event)
    now = time.monotonic()
    news.feed._ledger = Ledger(seq=0, partitions=4 * nodes, nodes=names)
    news.feed._epoch = Epoch(number=0, count=1, started=now, reported=now)
    return news, names


class DroppedError(Exception):
    """The server has no room for another stranger: a client tries again."""


class Node:
    """One node's end of the control channel, without a thread; `light` leaves out what the peer of a real server would check.

    Each ten of them have an address of their own, as nodes have on hosts: the server makes room for strangers host by host.
    """

    def __init__(self, number: int, secret: bytes, *, light: bool) -> None:
        self.number = number
        self.complete = False
        self.connected = False
        self.received = 0
        self.tries = 0
        self._secret = secret
        self._light = light

    def connect(self, address: tuple[str, int]) -> None:
        """Begin to connect; the socket is writable when that has come to an end."""
        self.sock = socket.socket()
        self.sock.setblocking(False)
        host = self.number // 10
        self.sock.bind((f"127.1.{host // 250}.{host % 250 + 1}", 0))
        self.sock.connect_ex(address)
        self.connected = False
        self.tries += 1
        self._seen = 0
        self._handshake = ClientHandshake(self._secret, Right.REGISTER)
        self._decoder = Decoder()

    def greet(self) -> None:
        """Begin to speak. Raises OSError when there is no connection."""
        error = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            raise OSError(error, os.strerror(error))
        tune(self.sock)
        self.connected = True
        self.sock.sendall(encode_frame(encode_message(self._handshake.opening())))

    def receive(self, expected: int) -> bool:
        """Take what is there; whether the announcement of the whole cluster has come."""
        data = self.sock.recv(RECEIVE_BYTES)
        if not data:
            if self._seen:
                raise RuntimeError(f"node {self.number} had registered and was dropped")
            raise DroppedError
        self.received += len(data)
        self._decoder.feed(data)
        while (payload := self._decoder.next_payload()) is not None:
            session = self._handshake.session
            if session is None:
                answer = self._handshake.receive(decode_message(payload))
                if answer is not None:
                    self.sock.sendall(encode_frame(encode_message(answer)))
                if self._handshake.session is not None:
                    self._decoder.limit_bytes = SEAL_BYTES + MESSAGE_LIMIT_BYTES
                    self.send({"op": str(Op.REGISTER), "call": 1, "record": self._record()})
                continue
            self._seen += 1
            if self._light and self._seen > 1:
                self.complete = True
                continue
            message = decode_message(session.open(payload))
            if message["op"] == Op.REFUSED:
                raise RuntimeError(f"node {self.number}: {message['error']}")
            if message["op"] == Op.CLUSTER:
                nodes = inflated(message)
                self.complete = isinstance(nodes, list) and len(nodes) == expected
        return self.complete

    def send(self, message: dict[str, Any]) -> None:
        """One sealed message."""
        body = encode_message(message)
        assert self._handshake.session is not None
        self.sock.sendall(frame_header(SEAL_BYTES + len(body)) + self._handshake.session.seal(body) + body)

    def _record(self) -> dict[str, Any]:
        record = NodeRecord(
            executor_id=self.number,
            role=Role.WORKER,
            index=self.number,
            host=f"10.20.{self.number // 250}.{self.number % 250}",
            port=30000 + self.number % 30000,
            pid=1000 + self.number,
            generation="20260101T000000-abcdef",
        )
        return record.to_dict()


def be_nodes(settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes in one thread; `register`, and then what they do until the next line."""
    secret = bytes.fromhex(settings["secret"])
    numbers = range(settings["first"], settings["first"] + settings["count"])
    nodes = [Node(number, secret, light=settings["light"]) for number in numbers]
    yield {}
    work: threading.Event | None = None
    for line in sys.stdin:
        if line.strip() == "register":
            _register(nodes, settings)
            yield {"complete": sum(node.complete for node in nodes), "received": sum(node.received for node in nodes)}
        elif line.strip() == "training":
            work = threading.Event()
            threading.Thread(target=_train, args=(nodes, settings["nodes"], work), daemon=True).start()
            yield {}
        else:
            yield {}
    if work is not None:
        work.set()


def _register(nodes: list[Node], settings: dict[str, Any]) -> None:
    """All of them at once; one that is turned away comes back after a pause, as a client does."""
    crowd = Crowd((settings["host"], settings["port"]), settings["nodes"])
    with crowd.selector:
        for node in nodes:
            crowd.connect(node)
            if not node.number % 64:
                crowd.turn(0)
        while crowd.complete < len(nodes):
            crowd.turn(0.05)


class Crowd:
    """Nodes that connect and register; `complete` of them have the addresses of all."""

    def __init__(self, address: tuple[str, int], expected: int) -> None:
        self.complete = 0
        self.selector = selectors.DefaultSelector()
        self._address = address
        self._expected = expected
        self._again: list[tuple[float, int, Node]] = []

    def connect(self, node: Node) -> None:
        """Begin with a node."""
        node.connect(self._address)
        self.selector.register(node.sock, selectors.EVENT_WRITE, node)

    def turn(self, timeout: float) -> None:
        """Let every node that can go on do so."""
        for key, _ in self.selector.select(timeout):
            self._go_on(key.data)
        while self._again and self._again[0][0] <= time.monotonic():
            self.connect(heapq.heappop(self._again)[2])

    def _go_on(self, node: Node) -> None:
        try:
            if not node.connected:
                node.greet()
                self.selector.modify(node.sock, selectors.EVENT_READ, node)
            elif not node.complete:
                self.complete += node.receive(self._expected)
        except (OSError, DroppedError):
            self.selector.unregister(node.sock)
            node.sock.close()
            pause = min(2.0, 0.05 * 2**node.tries) * random.uniform(0.5, 1.0)
            heapq.heappush(self._again, (time.monotonic() + pause, node.number, node))


def _train(nodes: list[Node], cluster: int, end: threading.Event) -> None:
    """Every node in its turn, spread over the interval in which each of them reports."""
    interval = report_interval_s(cluster)
    now = time.monotonic()
    turns = [(now + interval * (place / len(nodes)), place, "report") for place in range(len(nodes))]
    turns += [(now + _LINE_S * (place / len(nodes)), place, "line") for place in range(len(nodes))]
    heapq.heapify(turns)
    while not end.is_set():
        at, place, what = heapq.heappop(turns)
        end.wait(max(0.0, at - time.monotonic()))
        node = nodes[place]
        if what == "report":
            node.send({"op": "feed.progress", "seq": 0, "node_rows": int(at * 1000), "steps_done": int(at), "left_over": 0})
        else:
            node.send({"op": "node.output", "lines": ["Epoch 3/10: step 120, loss 0.2345, accuracy 0.9321"], "dropped": 0})
        heapq.heappush(turns, (at + (interval if what == "report" else _LINE_S), place, what))


def _memory_mib() -> float:
    status = Path("/proc/self/status").read_text()
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(peak.split()[1]) / 1024


def main() -> None:
    """Be what the settings say, and answer each line of stdin."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    settings = json.loads(sys.argv[1])
    for answer in serve(settings) if settings["role"] == "server" else be_nodes(settings):
        print(json.dumps(answer), flush=True)
    os._exit(0)  # thousands of sockets are the kernel's to close


if __name__ == "__main__":
    main()
