"""A node's process that stays when it should go on or end: where it is, and until when."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tfos_core import settings
from tfos_core.node_config import NodeConfig
from tfos_core.timers import Timers
from tfos_core.user_process import UserProcess

__all__ = ("Lingering",)


class Lingering:
    """The supervisor's view of its process; `process` is set when that was started.

    Args:
        send: to the driver; raises nothing.
        end: called when the process has not ended in time, with what is then said of it as of a failure.
    """

    def __init__(
        self,
        config: NodeConfig,
        timers: Timers,
        *,
        send: Callable[[Mapping[str, Any]], None],
        end: Callable[[dict[str, Any]], None],
    ) -> None:
        self._node = config.name
        self._limit_s = config.cluster.exit_limit_s
        self._timers = timers
        self._send = send
        self._end = end
        self.process: UserProcess | None = None

    def tell_stacks(self, why: str) -> None:
        """Answer the driver, which asks where the process is; an empty answer says that nobody knows."""
        answer: dict[str, Any] = {"op": "node.stacks", "place": "", "stack": "", "last_lines": []}
        if self.process is not None:
            lines = list(self.process.output.last_lines)
            stacks = self.process.ask_stacks(why)
            answer |= {"place": stacks.place, "stack": stacks.main_text, "last_lines": lines}
        self._send(answer)

    def returned(self) -> None:
        """The function has returned: from now on the process should end."""
        self._timers.set("warn", min(settings.EXIT_WARN_S, self._limit_s / 2), self._warn)
        self._timers.set("kill", self._limit_s, self._give_up)

    def _warn(self) -> None:
        text = f"the function of {self._node} has returned, and its process does not end: threads of it still run"
        hint = f"Join them, or make them daemon threads; at {self._limit_s:g} s the node is ended. Its log shows where they are."
        self._ask(text)
        self._send({"op": "node.warning", "id": "node-does-not-end", "message": text, "hint": hint})

    def _give_up(self) -> None:
        error = f"the function returned, and its process had not ended {self._limit_s:g} s later: threads of it still ran"
        self._end({"error": error, "traceback": self._ask(error)})

    def _ask(self, why: str) -> str:
        return "" if self.process is None else self.process.ask_stacks(why).text
