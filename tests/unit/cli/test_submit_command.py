"""The spark-submit command of every kind of cluster, compared with golden files (`UPDATE_GOLDEN=1` writes them)."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from fakes.submissions import SPECS, resolve

from tfos_cli.submit.command import HIDDEN, SparkSubmitCommand, build_command, write_secret_properties
from tfos_core.errors import ConfigError

GOLDEN = Path(__file__).parents[2] / "data" / "golden"
RUN = Path("/home/me/.tfos/runs/r1")
BASE = "name: digits\nentrypoint: apps/digits.py:main_fun\nnum_executors: 3\n"


def command_of(text: str, folder: Path, *, run_folder: Path = RUN) -> SparkSubmitCommand:
    resolved = resolve(text, folder, shown_folder=Path("/home/me/my job"))
    return build_command(
        resolved,
        plan_path=run_folder / "plan.json",
        run_folder=run_folder,
        python="/opt/venv/bin/python",
        spark_home=Path("/opt/spark"),
    )


def properties_of(command: SparkSubmitCommand) -> dict[str, str]:
    """What `--conf` says."""
    words = command.argv
    return dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "--conf")


def option_of(command: SparkSubmitCommand, option: str) -> str:
    return command.argv[command.argv.index(option) + 1]


@pytest.mark.parametrize("kind", SPECS)
def test_the_command_of_a_cluster_is_the_golden_one(kind: str, tmp_path: Path) -> None:
    golden = GOLDEN / f"{kind}.txt"
    command = command_of(SPECS[kind], tmp_path).render() + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(command, encoding="utf-8")
    assert command == golden.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", SPECS)
def test_the_rendered_command_is_what_a_shell_would_execute(kind: str, tmp_path: Path) -> None:
    command = command_of(SPECS[kind], tmp_path)
    words = shlex.split(command.render().replace("\\\n", ""))  # as a shell does first
    assert words[:3] == ["cd", "/home/me/my job", "&&"]
    assert tuple(words[3 + len(command.environment) :]) == command.argv


@pytest.mark.parametrize("kind", SPECS)
def test_every_cluster_gets_what_the_engine_needs(kind: str, tmp_path: Path) -> None:
    properties = properties_of(command_of(SPECS[kind], tmp_path))
    assert properties["spark.dynamicAllocation.enabled"] == "false"
    assert properties["spark.speculation"] == "false"
    assert properties["spark.scheduler.minRegisteredResourcesRatio"] == "1.0"
    assert properties["spark.scheduler.barrier.maxConcurrentTasksCheck.interval"] == "1s"
    assert properties["spark.scheduler.barrier.maxConcurrentTasksCheck.maxFailures"] == "3"
    assert "spark.python.worker.reuse" not in properties
    assert "spark.task.maxFailures" not in properties


@pytest.mark.parametrize("kind", SPECS)
def test_no_secret_is_in_the_command(kind: str, tmp_path: Path) -> None:
    command = command_of(SPECS[kind], tmp_path)
    for secret in ("abcdef", "open sesame"):
        assert secret not in " ".join(command.argv)
        assert secret not in command.render()
        assert secret not in str(command.to_dict())


def test_secret_properties_are_written_for_the_user_only_behind_the_defaults(tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text("spark.eventLog.enabled false")
    text = BASE + "spark: {master: 'spark://h:7077', conf: {spark.authenticate.secret: ' a\\b=c:d'}}\n"
    command = command_of(text, tmp_path, run_folder=tmp_path)
    write_secret_properties(command, spark_home=tmp_path, environ={})
    assert command.properties_file is not None
    assert command.properties_file.read_text() == "spark.eventLog.enabled false\nspark.authenticate.secret=\\ a\\\\b=c:d\n"
    assert command.properties_file.stat().st_mode & 0o777 == 0o600


def test_a_command_without_secrets_keeps_the_defaults_file_of_spark(tmp_path: Path) -> None:
    command = command_of(BASE, tmp_path)
    assert "--properties-file" not in command.argv
    write_secret_properties(command, spark_home=tmp_path, environ={})
    assert command.properties_file is None


def test_the_users_property_replaces_ours_and_lists_are_joined(tmp_path: Path) -> None:
    conf = "{spark.speculation: 'true', spark.submit.pyFiles: mine.zip, spark.executor.memory: 3g, spark.ui.enabled: true}"
    command = command_of(BASE + f"spark: {{conf: {conf}}}\n", tmp_path)
    properties = properties_of(command)
    assert properties["spark.speculation"] == "true"
    assert properties["spark.ui.enabled"] == "true"
    assert option_of(command, "--py-files").endswith("application.zip,mine.zip")
    assert properties["spark.executor.memory"] == "3g"
    assert option_of(command, "--master") == "local-cluster[3,1,3072]"


def test_the_users_options_of_java_come_after_ours(tmp_path: Path) -> None:
    command = command_of(BASE + "spark: {conf: {spark.executor.extraJavaOptions: -Xss4m}}\n", tmp_path)
    assert properties_of(command)["spark.executor.extraJavaOptions"].endswith("-XX:-UsePerfData -Xss4m")


@pytest.mark.parametrize("key", ["spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions"])
def test_java_starts_fast_inside_this_machine_unless_the_user_wants_it_otherwise(key: str, tmp_path: Path) -> None:
    assert "-XX:TieredStopAtLevel=1" in properties_of(command_of(BASE, tmp_path))[key].split()
    chosen = command_of(BASE + f"spark: {{conf: {{{key}: '-XX:TieredStopAtLevel=4'}}}}\n", tmp_path)
    # Of two the last one counts.
    assert properties_of(chosen)[key].split()[-1] == "-XX:TieredStopAtLevel=4"
    assert key not in properties_of(command_of(BASE + "spark: {master: 'spark://h:7077'}\n", tmp_path))


def test_a_temporary_folder_with_a_space_is_quoted_for_java(tmp_path: Path) -> None:
    options = properties_of(command_of(BASE, tmp_path, run_folder=Path("/home/me/my runs/r1")))["spark.driver.extraJavaOptions"]
    assert shlex.split(options)[0] == "-Djava.io.tmpdir=/home/me/my runs/r1/spark/tmp"


def test_standalone_asks_for_the_cores_of_all_executors(tmp_path: Path) -> None:
    spec = BASE + "spark: {master: 'spark://h:7077', executor_cores: 2, conf: {spark.executor.cores: '4'}}\n"
    command = command_of(spec, tmp_path)
    assert option_of(command, "--executor-cores") == "4"
    assert properties_of(command)["spark.cores.max"] == "12"
    assert "--num-executors" not in command.argv


def test_a_cluster_inside_this_machine_needs_no_network_and_writes_into_the_run_only(tmp_path: Path) -> None:
    command = command_of(BASE, tmp_path)
    properties = properties_of(command)
    assert command.environment["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert properties["spark.driver.host"] == properties["spark.driver.bindAddress"] == "127.0.0.1"
    assert properties["spark.ui.enabled"] == "false"
    for name in ("spark.local.dir", "spark.sql.warehouse.dir"):
        assert properties[name].startswith(str(RUN))


def test_a_scratch_folder_of_the_shell_does_not_win_over_that_of_the_run(tmp_path: Path) -> None:
    assert command_of(BASE, tmp_path).environment["SPARK_LOCAL_DIRS"] == f"{RUN}/spark/local"
    chosen = command_of(BASE + "spark: {conf: {spark.local.dir: /fast}}\n", tmp_path)
    assert chosen.environment["SPARK_LOCAL_DIRS"] == "/fast"
    assert "SPARK_LOCAL_DIRS" not in command_of(BASE + "spark: {master: 'spark://h:1'}\n", tmp_path).environment


def test_a_local_cluster_that_the_user_wrote_is_taken_as_it_is(tmp_path: Path) -> None:
    command = command_of(BASE + "spark: {master: 'local-cluster[3,2,2048]', executor_memory: 2g}\n", tmp_path)
    assert option_of(command, "--master") == "local-cluster[3,2,2048]"
    assert properties_of(command)["spark.executor.cores"] == "2"
    assert properties_of(command)["spark.driver.host"] == "127.0.0.1"


def test_the_interpreter_of_executors_can_be_named_in_the_spec(tmp_path: Path) -> None:
    spec = BASE + "environment: {vars: {PYSPARK_PYTHON: /usr/bin/python3.11}}\nspark: {master: 'spark://h:7077'}\n"
    environment = command_of(spec, tmp_path).environment
    assert environment["PYSPARK_PYTHON"] == "/usr/bin/python3.11"
    assert environment["PYSPARK_DRIVER_PYTHON"] == "/opt/venv/bin/python"


def test_a_module_that_is_installed_everywhere_needs_no_application_archive(tmp_path: Path) -> None:
    command = command_of("name: digits\nentrypoint: package.module:main_fun\n", tmp_path)
    assert option_of(command, "--py-files") == f"{RUN}/ship/tfos_core.zip"


def test_a_hidden_value_is_shown_as_hidden(tmp_path: Path) -> None:
    command = command_of(BASE + "environment: {vars: {MY_PASSWORD: pw1}}\n", tmp_path)
    assert f"MY_PASSWORD='{HIDDEN}'" in command.render()
    assert command.environment["MY_PASSWORD"] == "pw1"
    assert command.secret_properties == {"spark.executorEnv.MY_PASSWORD": "pw1"}


@pytest.mark.parametrize(
    ("spark", "message"),
    [
        ("{master: 'local[2]'}", r"spark.master is 'local\[2\]', which has one process for all nodes"),
        ("{master: mesos://h}", "spark.master is 'mesos://h', which is no master of Spark"),
        ("{deploy_mode: cluster}", "no such mode for Python programs on this machine"),
        ("{master: 'spark://h:7077', deploy_mode: cluster}", "no such mode for Python programs on spark://h:7077"),
        ("{jars: ['a,b.jar']}", "'file:///home/me/my%20job/a,b.jar' has a comma"),
        ("{packages: ['a:b:1,c:d:2']}", "'a:b:1,c:d:2' has a comma"),
        ("{conf: {spark.executor.memory: lots}}", "spark.executor.memory is 'lots', which is no size"),
        ("{master: 'spark://h:1', conf: {spark.executor.cores: many}}", "spark.executor.cores is 'many'"),
    ],
)
def test_what_can_not_work_is_refused(spark: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        command_of(BASE + f"spark: {spark}\n", tmp_path)
    assert caught.value.hint
