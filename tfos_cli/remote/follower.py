"""Follows a run whose driver is on the cluster: the same loop, with the link in place of the private channel."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace

from tfos_cli.diagnosis import Evidence
from tfos_cli.follower import Follower, Line, Message, Said
from tfos_cli.launch import Launch
from tfos_cli.remote.applications import Applications, applications_of
from tfos_cli.remote.link import Link
from tfos_cli.remote.local_copy import LocalCopy
from tfos_cli.remote.place import RemoteRun, private_path
from tfos_cli.remote.verdict import error_of
from tfos_cli.runs import Run
from tfos_cli.spec.masters import MasterKind
from tfos_cli.ui.progress import Renderer
from tfos_core.private_files import write_private
from tfos_core.uplink.folder import StorageFolder
from tfos_core.uplink.private import Private

__all__ = ("ClusterFollower", "follower_of", "storage_environment")

#: What the record gets to show its end when spark-submit says that the application is over.
_LAST_LOOK_S = 15.0
#: Between two questions to the manager about an application that spark-submit no longer watches.
_ASK_EVERY_S, _ASK_SELDOM_S = 15.0, 120.0


def follower_of(run: Run, launch: Launch, choose_renderer: Callable[[], Renderer]) -> Follower:
    """The follower of a run, by where its driver is."""
    remote = RemoteRun.read(run.folder)
    return Follower(run, launch, choose_renderer) if remote is None else ClusterFollower(run, launch, choose_renderer, remote)


def storage_environment(remote: RemoteRun) -> None:
    """Let the clients of storage in this process find Hadoop's settings, whichever variable named them."""
    if remote.conf:
        os.environ.setdefault("HADOOP_CONF_DIR", remote.conf)


class ClusterFollower(Follower):
    """One run in cluster deploy mode. When it is killed, the run goes on, and its record on the cluster is complete."""

    def __init__(
        self,
        run: Run,
        launch: Launch,
        choose_renderer: Callable[[], Renderer],
        remote: RemoteRun,
        *,
        applications: Applications | None = None,
    ) -> None:
        super().__init__(run, launch, choose_renderer)
        self._remote = remote
        self._applications = applications or applications_of(remote, launch.environment)
        self._application_id = ""
        self._link: Link | None = None
        self._copy: LocalCopy | None = None
        self._closing_link = contextlib.ExitStack()
        self._ask_after = 0.0
        self._ask_pause = _ASK_EVERY_S

    def _open_channel(self, stack: contextlib.ExitStack) -> None:
        storage_environment(self._remote)
        folder = StorageFolder(self._remote.record)
        folder.make()
        self._closing_link = stack.enter_context(contextlib.ExitStack())
        self._copy = self._closing_link.enter_context(LocalCopy(self._run.folder, self._redactor))
        self._copy.update(record=self._remote.record)
        self._link = self._closing_link.enter_context(
            Link(
                folder,
                self._copy,
                towards=self._remote.towards,
                environ=self._launch.environment,
                on_connected=self._driver_heard,
                on_line=lambda line: self._inbox.put(Message(line)),
                on_say=lambda text: self._inbox.put(Said(text)),
            )
        )
        self._channel = self._link

    def _driver_heard(self) -> None:
        """The driver has its copy of the file: Spark says the application's id before it copies anything."""
        private_path(self._run.folder).unlink(missing_ok=True)
        self._heard()

    def _start(self) -> None:
        assert self._link is not None  # noqa: S101 - opened before
        host, port = self._link.address
        # On Kubernetes the file would lie where uploads do; there the driver's pod has its secrets from Secrets.
        names = () if self._remote.manager is MasterKind.KUBERNETES else self._launch.secrets
        values = {name: self._launch.environment[name] for name in names if name in self._launch.environment}
        private = Private(host=host, port=port, secret=self._link.secret, values=values)
        write_private(private_path(self._run.folder), private.to_json())
        super()._start()

    def _took_line(self, line: Line) -> None:
        if self._application_id:
            return
        found = self._applications.find_id(line.text)
        if found is not None and self._copy is not None:
            self._application_id = found
            self._copy.update(application_id=found)
            self._story.say(f"application {found}")

    def _is_over(self) -> bool:
        if self._exit_code is None or self._link is None:
            return False
        return self._link.is_finished or self._is_gone()

    def _is_gone(self) -> bool:
        """Whether the application is over although its driver has not said so; spark-submit has ended."""
        if self._driver_id() is None:
            return True  # nothing was submitted
        if time.monotonic() < self._ask_after:
            return False
        report = self._applications.report(self._application_id)
        if report is not None and report.is_over:
            self._look_last()
            return True
        if report is None and self._exit_code and not self._connected:
            return True  # it has an id, and was refused or never handed over
        self._ask_after = time.monotonic() + self._ask_pause
        self._ask_pause = min(_ASK_SELDOM_S, 2 * self._ask_pause)
        return False

    def _submit_ended(self) -> None:
        """The application is over as well, unless Spark was told not to wait for it, or was killed."""
        if self._link is not None and self._driver_id() is not None:
            self._look_last()

    def _look_last(self) -> None:
        if self._link is not None and not self._link.is_finished:
            self._link.look_now(timeout=_LAST_LOOK_S)
            if not self._link.is_finished:
                self._link.adopt_status()

    def _driver_id(self) -> str | None:
        """The id of the application, from wherever it is known first."""
        self._application_id = self._application_id or self._run.status().application_id
        return self._application_id or None

    def _end_early(self) -> None:
        """No driver was heard yet. What waits in a queue has nothing to shut down; a driver that starts now finds the request."""
        self._ask_to_stop()
        if self._driver_id() is not None:
            self._applications.kill(self._application_id)
            self._ask_after = 0.0
        else:
            super()._end_early()

    def _kill(self) -> None:
        application = self._driver_id()
        if application is not None and not (self._link is not None and self._link.is_finished):
            self._applications.kill(application)
        super()._kill()

    def _abandon(self) -> None:
        super()._abandon()
        private_path(self._run.folder).unlink(missing_ok=True)

    def _clean_up(self) -> None:
        super()._clean_up()
        # From here on the record belongs to the follower again.
        self._closing_link.close()
        self._drain()

    def _has_driver(self) -> bool:
        return self._driver_started

    def _enquire(self, evidence: Evidence) -> Evidence:
        application = self._driver_id()
        if evidence.error is not None or application is None:
            return evidence
        report = self._applications.report(application)
        if report is None:
            return evidence
        error = error_of(
            application,
            report,
            why=self._applications.why(report),
            driver_started=self._driver_started,
            stop_reason=self._stop_reason,
        )
        return evidence if error is None else replace(evidence, error=error)
