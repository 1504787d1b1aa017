"""The API server of the tests keeps, lists, watches and removes what it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from testbed.kubernetes import ApiServer, properties_of
from testbed.kubernetes import Request as ApiRequest

PODS = "/api/v1/namespaces/n/pods"


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


def ask(api: ApiServer, path: str, method: str = "GET", body: dict[str, Any] | None = None) -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(api.address + path, data=data, method=method), timeout=10) as answer:
        found = json.load(answer)
    assert isinstance(found, dict)
    return found


def pod(name: str, owner: str = "", **labels: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "labels": labels}
    return {"kind": "Pod", "metadata": metadata | ({"ownerReferences": [{"uid": owner}]} if owner else {})}


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("labelSelector=role=driver", ["a"]),
        ("labelSelector=role%3Dexecutor%2Cid%20in%20%281%2C2%29", ["b"]),
        ("labelSelector=%21id", ["a"]),
        ("labelSelector=role%3Dexecutor,gone!%3Dtrue", ["b"]),
        ("fieldSelector=metadata.name%3Da", ["a"]),
        ("labelSelector=", ["a", "b"]),
    ],
)
def test_pods_are_listed_by_labels_and_names(selector: str, names: list[str], api: ApiServer) -> None:
    ask(api, PODS, "POST", pod("a", role="driver"))
    ask(api, PODS, "POST", pod("b", role="executor", id="1"))
    assert [found["metadata"]["name"] for found in ask(api, f"{PODS}?{selector}")["items"]] == names


def test_what_is_applied_twice_keeps_its_identity_and_what_is_made_twice_is_refused(api: ApiServer) -> None:
    path = "/apis/networking.k8s.io/v1/namespaces/n/networkpolicies/p"
    first = ask(api, path, "PATCH", {"metadata": {}, "spec": {"a": 1}})
    second = ask(api, path, "PATCH", {"metadata": {}, "spec": {"a": 2}})
    assert (second["metadata"]["uid"], second["spec"]) == (first["metadata"]["uid"], {"a": 2})
    ask(api, PODS, "POST", pod("a"))
    with pytest.raises(HTTPError, match="409"):
        ask(api, PODS, "POST", pod("a"))


def test_a_pod_that_is_deleted_takes_what_it_owns_along_and_watchers_see_it(api: ApiServer) -> None:
    with urlopen(f"{api.address}{PODS}?watch=true", timeout=10) as watch:
        owner = ask(api, PODS, "POST", pod("driver"))["metadata"]["uid"]
        ask(api, PODS, "POST", pod("executor", owner))
        ask(api, f"{PODS}/driver", "DELETE")
        seen = [json.loads(watch.readline()) for _ in range(4)]
    assert [(event["type"], event["object"]["metadata"]["name"]) for event in seen] == [
        ("ADDED", "driver"), ("ADDED", "executor"), ("DELETED", "driver"), ("DELETED", "executor"),
    ]  # fmt: skip
    with pytest.raises(HTTPError, match="404"):
        ask(api, f"{PODS}/executor")


def test_a_watch_begins_when_it_is_asked_for_and_not_when_its_first_event_is_taken(api: ApiServer) -> None:
    asked: dict[str, Any] = {"namespace": "n", "kind": "pods", "name": "", "query": {}, "agent": ""}
    events = api.watch(ApiRequest(method="GET", body=None, **asked))
    api.answer(ApiRequest(method="POST", body=pod("driver"), **asked))
    # Its thread ends with the server.
    taking = ThreadPoolExecutor(1)
    assert taking.submit(next, events).result(10)["type"] == "ADDED"
    taking.shutdown(wait=False)


def test_properties_are_read_as_java_wrote_them() -> None:
    text = "#Java properties\n#Sun Nov 29\nspark.master=k8s\\://http\\://h\\:1\nspark.archives=file\\:/x.tar.gz\\#env\n"
    found = properties_of({"data": {"spark.properties": text}})
    assert found == {"spark.master": "k8s://http://h:1", "spark.archives": "file:/x.tar.gz#env"}
