"""Does what pods say: each is a process of this machine, for an `ApiServer` that has no nodes.

What Spark's image does with the arguments of a pod is done here, with the Spark and the Python that run the tests as the image. A
pod's variables are all that it has, its volumes are folders, its address is loopback, names of services mean loopback, and when
its process ends, whatever else it has started ends too, as in a container.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self, cast

from testbed.kubernetes import ApiServer, environment_of
from testbed.processes import MARK, kill_all, kill_group, marked, start_child
from testbed.spark_home import SMALL_JAVA, find_spark

__all__ = ("PodRunner",)

LOOPBACK = "127.0.0.1"
POD_MARK = "TESTBED_POD"
EXECUTOR = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
_GRACE_S = 15.0
_SERVICE = re.compile(r"[a-z0-9-]+-svc\.[a-z0-9-]+\.svc")
_ARGUMENTS = {
    "--driver-url": "SPARK_DRIVER_URL",
    "--executor-id": "SPARK_EXECUTOR_ID",
    "--cores": "SPARK_EXECUTOR_CORES",
    "--app-id": "SPARK_APPLICATION_ID",
    "--hostname": "SPARK_EXECUTOR_POD_IP",
    "--resourceProfileId": "SPARK_RESOURCE_PROFILE_ID",
    "--podName": "SPARK_EXECUTOR_POD_NAME",
}

Json = dict[str, Any]


class PodRunner:
    """Runs the pods of an API server; a context manager that leaves nothing behind.

    Args:
        secrets: Secrets of Kubernetes: name to key to value.
    """

    def __init__(self, api: ApiServer, *, secrets: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._api = api
        self._secrets = secrets or {}
        self._lock = threading.Lock()
        self._pods: dict[str, _Pod] = {}
        self.folder = Path()

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="pods-"))
        self._api.on_pod, self._api.on_deleted = self._start, self._stop
        return self

    def __exit__(self, *_: object) -> None:
        self._api.on_pod = self._api.on_deleted = lambda _pod: None
        for pod in self._running():
            pod.end(0.0)
        for pod in self._running():
            pod.thread.join(20)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self, name_part: str) -> str:
        """What the pods whose names have this part have written."""
        return "".join(pod.log.read_text() for pod in self._running() if name_part in pod.name and pod.log.exists())

    def kill_for_memory(self, name_part: str) -> None:
        """Kill each pod whose name has this part, as the kernel does when a container takes more memory than its limit."""
        for pod in self._running():
            if name_part in pod.name:
                pod.reason = "OOMKilled"
                pod.end(0.0)

    def _running(self) -> list[_Pod]:
        with self._lock:
            return list(self._pods.values())

    def _start(self, body: Json) -> None:
        pod = _Pod(body, self)
        with self._lock:
            self._pods[body["metadata"]["uid"]] = pod
        pod.thread.start()

    def _stop(self, body: Json) -> None:
        with self._lock:
            pod = self._pods.get(body["metadata"]["uid"])
        if pod is not None:
            threading.Thread(target=pod.end, args=(_GRACE_S,), daemon=True).start()

    def value(self, given: str | Json, body: Json) -> str:
        """The value of a variable of a pod."""
        if isinstance(given, str):
            return given
        if "secretKeyRef" in given:
            return self._secrets[given["secretKeyRef"]["name"]][given["secretKeyRef"]["key"]]
        fields = {"status.podIP": LOOPBACK, "metadata.name": body["metadata"]["name"]}
        return fields[given["fieldRef"]["fieldPath"]]

    def volume(self, volume: Json, folder: Path) -> Path:
        """The folder that a volume is."""
        if "hostPath" in volume:
            return Path(volume["hostPath"]["path"])
        place = folder / "volumes" / volume["name"]
        place.mkdir(parents=True)
        if "configMap" in volume:
            # Spark makes the pod first: a kubelet waits for the config map too.
            found = self._api.wait_for_object("configmaps", volume["configMap"]["name"])
            for name, text in found["data"].items():
                (place / name).write_text(_SERVICE.sub(LOOPBACK, text))
        return place

    def tell(self, body: Json, phase: str, code: int | None = None, reason: str = "") -> None:
        """Set the status of a pod."""
        state: Json = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if code is not None:
            reason = reason or ("Completed" if code == 0 else "Error")
            state = {"terminated": {"exitCode": code if code >= 0 else 128 - code, "reason": reason}}
        name = body["spec"]["containers"][0]["name"]
        container = {"name": name, "state": state, "ready": code is None, "restartCount": 0, "image": "", "imageID": ""}
        ready = {"type": "Ready", "status": "True" if code is None else "False"}
        status = {"phase": phase, "podIP": LOOPBACK, "hostIP": LOOPBACK, "containerStatuses": [container], "conditions": [ready]}
        self._api.set_status(body, status)


class _Pod:
    """One pod and its process."""

    def __init__(self, body: Json, runner: PodRunner) -> None:
        self._body = body
        self._runner = runner
        self.name = body["metadata"]["name"]
        self.reason = ""
        self._mark = uuid.uuid4().hex
        self._folder = runner.folder / self._mark[:8]
        self.log = self._folder / "log"
        self._started = threading.Event()
        self._child: subprocess.Popen[bytes] | None = None
        self.thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def end(self, grace_s: float) -> None:
        """End the process: SIGTERM first when there is grace."""
        self._started.wait(30)
        if self._child is not None:
            kill_group(self._child, grace_s=grace_s)

    def _run(self) -> None:
        work = self._folder / "work"
        for folder in (work, self._folder / "t"):
            folder.mkdir(parents=True)
        try:
            command, environment = self._command()
            with self.log.open("wb") as log:
                child = start_child(command, environment=environment, stdout=log, stderr=subprocess.STDOUT, folder=work)
            self._child = cast("subprocess.Popen[bytes]", child)
        finally:
            self._started.set()
        self._runner.tell(self._body, "Running")
        code = self._child.wait()
        kill_all(marked(self._mark, name=POD_MARK))
        self._runner.tell(self._body, "Succeeded" if code == 0 else "Failed", code, self.reason)

    def _command(self) -> tuple[list[str], dict[str, str]]:
        (container,) = self._body["spec"]["containers"]
        volumes = {volume["name"]: self._runner.volume(volume, self._folder) for volume in self._body["spec"]["volumes"]}
        mounts = {mount["mountPath"]: str(volumes[mount["name"]]) for mount in container["volumeMounts"]}

        def here(text: str) -> str:
            for path, folder in mounts.items():
                text = text.replace(path, folder)
            return _SERVICE.sub(LOOPBACK, text)

        own = {name: here(self._runner.value(given, self._body)) for name, given in environment_of(self._body)}
        environment = self._image() | own
        arguments = [here(argument) for argument in container["args"]]
        if arguments[0] == "driver":
            binary = str(find_spark() / "bin" / "spark-submit")
            address = own["SPARK_DRIVER_BIND_ADDRESS"]
            conf = ["--conf", f"spark.driver.bindAddress={address}", "--conf", f"spark.executorEnv.SPARK_DRIVER_POD_IP={address}"]
            return [binary, *conf, "--deploy-mode", "client", *arguments[1:]], environment
        options = [value for _, value in sorted((name, value) for name, value in own.items() if name.startswith("SPARK_JAVA_OPT_"))]
        memory = own["SPARK_EXECUTOR_MEMORY"]
        path = f"{own.get('SPARK_CONF_DIR', '')}:{find_spark()}/jars/*"
        program = [word for option, name in _ARGUMENTS.items() for word in (option, own[name])]
        return ["java", *options, f"-Xms{memory}", f"-Xmx{memory}", "-cp", path, EXECUTOR, *program], environment

    def _image(self) -> dict[str, str]:
        """What the image sets."""
        return {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder / "t"),  # short, since sockets are made below it
            "SPARK_HOME": str(find_spark()),
            "SPARK_LOCAL_IP": LOOPBACK,
            "JDK_JAVA_OPTIONS": SMALL_JAVA,
            "TF_CPP_MIN_LOG_LEVEL": "2",
            MARK: os.environ.get(MARK, ""),
            POD_MARK: self._mark,
        }
