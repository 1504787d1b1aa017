"""An API server of Kubernetes for tests: it records what is asked of it, and keeps what it was given.

It speaks as much of the protocol as Spark's client does: create, server-side apply, get, list, watch and delete, over plain HTTP.
There is nothing behind it: pods stay pending unless somebody does what they say.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

__all__ = ("ApiServer", "Request", "environment_of", "properties_of")

LOOPBACK = "127.0.0.1"
_PATH = re.compile(r"/(?:api/v1|apis/[^/]+/[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<kind>[^/]+)(?:/(?P<name>[^/]+))?\Z")

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request: `kind` is the plural of the path, as `pods`; `name` is empty for a collection."""

    method: str
    namespace: str
    kind: str
    name: str
    query: Mapping[str, str]
    body: Any
    agent: str


class ApiServer:
    """The server; a context manager. `on_pod` is called for each pod that is made, `on_deleted` for each that is deleted."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._objects: dict[tuple[str, str, str], Json] = {}
        self._news: list[tuple[str, str, str, Json]] = []
        self._versions = itertools.count(1)
        self._is_closed = False
        self.on_pod: Callable[[Json], None] = lambda _pod: None
        self.on_deleted: Callable[[Json], None] = lambda _pod: None
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler_of(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="kubernetes-api", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    @property
    def address(self) -> str:
        """`http://host:port`."""
        return f"http://{LOOPBACK}:{self._server.server_port}"

    @property
    def master(self) -> str:
        """The master URL of Spark."""
        return f"k8s://{self.address}"

    @property
    def requests(self) -> tuple[Request, ...]:
        """All that was asked, in order."""
        with self._changed:
            return tuple(self._requests)

    def objects(self, kind: str) -> tuple[Json, ...]:
        """What is there of a kind (`pods`, `services`, `configmaps`, ...)."""
        with self._changed:
            return tuple(body for (_, of, _), body in self._objects.items() if of == kind)

    def wait_for_objects(self, kind: str, count: int, *, role: str | None = None, deadline_s: float = 60.0) -> tuple[Json, ...]:
        """The objects of a kind, once there are so many; pods of one role (`driver`, `executor`) when it is given."""

        def found() -> tuple[Json, ...]:
            return tuple(o for o in self.objects(kind) if role is None or o["metadata"].get("labels", {}).get("spark-role") == role)

        with self._changed:
            self._changed.wait_for(lambda: len(found()) >= count, deadline_s)
        assert len(found()) >= count, f"{len(found())} of {count} {role or ''} {kind} after {deadline_s:g} s"
        return found()

    def wait_for_object(self, kind: str, name: str, deadline_s: float = 60.0) -> Json:
        """The object of a name, once it is there."""

        def found() -> Json | None:
            return next((body for body in self.objects(kind) if body["metadata"]["name"] == name), None)

        with self._changed:
            body = self._changed.wait_for(found, deadline_s)
        assert body is not None, f"there is no {name} of {kind} after {deadline_s:g} s"
        return body

    def set_status(self, pod: Json, status: Json) -> None:
        """What a kubelet tells about a pod; nothing when the pod is gone."""
        with self._changed:
            key = _key(pod, "pods")
            if key in self._objects:
                self._put("MODIFIED", key, self._objects[key] | {"status": status})

    def answer(self, request: Request) -> tuple[int, Json]:
        """Do what is asked, and say the code and the body of the answer."""
        with self._changed:
            self._requests.append(request)
            match request.method:
                case "POST" | "PATCH" | "PUT":
                    return self._make(request)
                case "DELETE":
                    return self._delete(request)
                case _:
                    return self._get(request)

    def watch(self, request: Request) -> Iterator[Json]:
        """Events from this call on, whenever the first one is taken, until the server is closed."""
        with self._changed:
            self._requests.append(request)
            return self._events(request, len(self._news))

    def _events(self, request: Request, seen: int) -> Iterator[Json]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda start=seen: len(self._news) > start or self._is_closed)
                news, seen = self._news[seen:], len(self._news)
                if self._is_closed:
                    return
            for event, namespace, kind, body in news:
                if (namespace, kind) == (request.namespace, request.kind) and _is_selected(body, request):
                    yield {"type": event, "object": body}

    def _make(self, request: Request) -> tuple[int, Json]:
        if not isinstance(request.body, dict):  # a JSON patch, with which Spark labels pods that have ended
            found = self._objects.get((request.namespace, request.kind, request.name))
            return (200, found) if found is not None else (404, _status(404, "NotFound"))
        body = request.body
        name = request.name or body["metadata"].get("name") or f"{body['metadata']['generateName']}{uuid.uuid4().hex[:5]}"
        key = (request.namespace, request.kind, name)
        is_new = key not in self._objects
        if request.method == "POST" and not is_new:
            return 409, _status(409, "AlreadyExists")
        before = self._objects.get(key, {"metadata": {"uid": str(uuid.uuid4()), "creationTimestamp": "2026-01-01T00:00:00Z"}})
        metadata = before["metadata"] | body.get("metadata", {}) | {"name": name, "namespace": request.namespace}
        made = before | body | {"metadata": metadata}
        if request.kind == "pods" and is_new:
            made["status"] = {"phase": "Pending"}
        self._put("ADDED" if is_new else "MODIFIED", key, made)
        if request.kind == "pods" and is_new:
            self.on_pod(self._objects[key])
        return (201 if request.method == "POST" else 200), self._objects[key]

    def _delete(self, request: Request) -> tuple[int, Json]:
        doomed = [
            key
            for key, body in self._objects.items()
            if key[:2] == (request.namespace, request.kind)
            and (key[2] == request.name if request.name else _is_selected(body, request))
        ]
        if not doomed and request.name:
            return 404, _status(404, "NotFound")
        while doomed:
            body = self._objects.pop(doomed[0], None)
            if body is not None:
                self._news.append(("DELETED", *doomed[0][:2], body))
                owned = [key for key, other in self._objects.items() if _owns(body, other)]
                doomed += owned
                if doomed[0][1] == "pods":
                    self.on_deleted(body)
            del doomed[0]
        self._changed.notify_all()
        return 200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _get(self, request: Request) -> tuple[int, Json]:
        if request.name:
            found = self._objects.get((request.namespace, request.kind, request.name))
            return (200, found) if found is not None else (404, _status(404, "NotFound"))
        if not request.kind:
            return 404, _status(404, "NotFound")
        items = [
            body
            for key, body in self._objects.items()
            if key[:2] == (request.namespace, request.kind) and _is_selected(body, request)
        ]
        kinds = {"pods": "PodList", "configmaps": "ConfigMapList", "services": "ServiceList"}
        kind = kinds.get(request.kind, "List")
        return 200, {"apiVersion": "v1", "kind": kind, "metadata": {"resourceVersion": str(next(self._versions))}, "items": items}

    def _put(self, event: str, key: tuple[str, str, str], body: Json) -> None:
        body["metadata"] = body["metadata"] | {"resourceVersion": str(next(self._versions))}
        self._objects[key] = body
        self._news.append((event, *key[:2], body))
        self._changed.notify_all()


def environment_of(pod: Json) -> list[tuple[str, str | Json]]:
    """Variables of the only container of a pod, in order: a text, or where the value comes from."""
    (container,) = pod["spec"]["containers"]
    return [(variable["name"], variable.get("value", variable.get("valueFrom", ""))) for variable in container["env"]]


def properties_of(config_map: Json) -> dict[str, str]:
    """Spark's properties in a config map, as Java reads them."""
    lines = config_map["data"]["spark.properties"].splitlines()
    pairs = (re.split(r"(?<!\\)=", line, maxsplit=1) for line in lines if line and not line.startswith("#"))
    return {re.sub(r"\\(.)", r"\1", key): re.sub(r"\\(.)", r"\1", value) for key, value in pairs}


def _key(body: Json, kind: str) -> tuple[str, str, str]:
    return (body["metadata"]["namespace"], kind, body["metadata"]["name"])


def _owns(owner: Json, body: Json) -> bool:
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in body["metadata"].get("ownerReferences", ()))


def _is_selected(body: Json, request: Request) -> bool:
    """Whether an object is asked for; of selectors, those that Spark uses: `metadata.name=a`, `a=b`, `a!=b`, `!a`, `a in (b,c)`."""
    field, _, value = request.query.get("fieldSelector", "").partition("=")
    if field == "metadata.name" and body["metadata"]["name"] != value:
        return False
    labels = body["metadata"].get("labels", {})
    for term in re.split(r",(?![^(]*\))", request.query.get("labelSelector", "")):
        if among := re.match(r"\s*(\S+) in \((.*)\)", term):
            wanted: bool = labels.get(among[1]) in among[2].split(",")
        elif term.startswith("!"):
            wanted = term[1:] not in labels
        elif "!=" in term:
            name, _, value = term.partition("!=")
            wanted = labels.get(name) != value
        else:
            name, separator, value = term.partition("=")
            wanted = not separator or labels.get(name) == value.lstrip("=")
        if not wanted:
            return False
    return True


def _status(code: int, reason: str) -> Json:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason}


def _handler_of(api: ApiServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            parts = urlsplit(self.path)
            match = _PATH.match(parts.path)
            request = Request(
                method=self.command,
                namespace=match["namespace"] if match else "",
                kind=match["kind"] if match else "",
                name=(match["name"] or "") if match else "",
                query={name: values[-1] for name, values in parse_qs(parts.query).items()},
                body=json.loads(body) if body else None,
                agent=self.headers.get("User-Agent", ""),
            )
            if request.method == "GET" and request.query.get("watch") == "true":
                if "Upgrade" not in self.headers:
                    self.send_events(request)
                    return
                code, answer = 503, _status(503, "NoWebSockets")  # the client then asks for lines
            else:
                code, answer = api.answer(request)
            data = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def send_events(self, request: Request) -> None:
            # Whoever has read the head of the answer misses nothing from then on.
            events = api.watch(request)
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            try:
                for event in events:
                    data = json.dumps(event).encode() + b"\n"
                    self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                    self.wfile.flush()
            except OSError:
                self.close_connection = True  # nobody watches any more

        def log_message(self, *_: object) -> None:
            """Quiet: what was asked is in `requests`."""

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any  # noqa: N815 - named by http.server

    return Handler
