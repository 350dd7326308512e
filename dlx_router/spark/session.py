"""The one place that makes a Spark session: here, on a cluster, under spark-submit, or far away by Spark Connect.

Every session of ours computes in UTC, has the package on its workers and knows the source `rabbitmq_stream`.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from dlx_router.spark import bundle, class_data, scratch, worker
from dlx_router.spark.java import Java, find_java

LOCAL: Final = "local[*,4]"  # four attempts: with local[2] one closed connection to the broker ends a query
ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.maxConcurrentOutputFileWriters": "4",  # days a task writes at once; for more it sorts whole events
}
_HERE: Final = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",  # 15 s are short on a busy machine
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
}
_ONCE: Final = {"spark.speculation": "false"}  # a task of a redrive that is run beside itself sends its letters twice
_JAVA: Final = "-XX:+UseParallelGC -XX:ParallelGCThreads=2"
_SHORT: Final = "-XX:TieredStopAtLevel=1"  # the second compiler does not earn back what it takes in a minute
SMALL: Final = "1g"  # heap of sessions whose tasks are Python's
LARGE: Final = "1500m"  # of those that shuffle
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"  # set by spark-submit alone


def build_session(
    app: str = "dlx-router",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    heap: str = SMALL,
    is_short: bool = True,
) -> SparkSession:
    """The session, ready for every job of ours; that of this process where there is one.

    `remote`: a Spark Connect server (sc://host:15002). `master`: a cluster (spark://host:7077). Neither: SPARK_REMOTE,
    or what spark-submit says, or this machine. `conf` wins over our settings. Raises JavaMissing where Spark would run
    here and cannot. `heap`, `is_short`: of Java on this machine; short is what ends within minutes.
    """
    remote = remote or (None if master else os.environ.get("SPARK_REMOTE"))
    if remote:
        return _remote(app, remote, {**ALWAYS, **(conf or {})})
    if is_submitted():
        return _ready(_built(SparkSession.Builder().appName(app), {**ALWAYS, **_ONCE, **(conf or {})}))
    java = find_java()
    is_local = (master or LOCAL).startswith("local")
    _prepare_environment(java, is_local=is_local)
    local = _HERE | {"spark.driver.memory": heap} if is_local else {}
    builder = SparkSession.Builder().appName(app).master(master or LOCAL)
    how = " ".join([_JAVA, *([_SHORT] if is_short else []), class_data.options(java)]) if is_local else ""
    conf = {**ALWAYS, **_ONCE, **local, **_aside(how), **(conf or {})}
    return _ready(_built(builder, conf), ship=bool(master) and not local)


def is_submitted() -> bool:
    """Whether spark-submit has started this process."""
    return _SUBMITTED in os.environ


def _prepare_environment(java: Java, *, is_local: bool) -> None:
    """What Spark reads from the environment when it starts its JVM and workers."""
    os.environ["JAVA_HOME"] = str(java.home)
    if is_local:  # else PATH's python3 runs the workers, which may lack pyarrow or this package
        os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = worker.python(), sys.executable
        paths = [path for path in (bundle.root(), os.environ.get("PYTHONPATH", "")) if path]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)


def _aside(java: str) -> dict[str, str]:
    """Where Spark and Java write what does not fit: their defaults are the current folder and /tmp, where it stays."""
    for path in filter(None, os.environ.get("SPARK_LOCAL_DIRS", "").split(",")):  # which wins over ours
        scratch.checked(Path(path).resolve(), "SPARK_LOCAL_DIRS")
    folder = scratch.of_process()
    return {
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.extraJavaOptions": f'{java} "-Djava.io.tmpdir={folder}"'.strip(),
    }


def _built(builder: SparkSession.Builder, conf: Mapping[str, str]) -> SparkSession:
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _remote(app: str, url: str, conf: Mapping[str, str]) -> SparkSession:
    session = SparkSession.Builder().appName(app).remote(url).getOrCreate()
    for key, value in conf.items():
        session.conf.set(key, value)
    session.addArtifacts(str(bundle.made()), pyfile=True)
    return _ready(session)


def _ready(session: SparkSession, *, ship: bool = False) -> SparkSession:
    from dlx_router.spark.archive.segment_source import SegmentSource  # noqa: PLC0415 - after JAVA_HOME and the rest are set
    from dlx_router.spark.source import RabbitMQStream  # noqa: PLC0415 - as above

    if ship:
        session.sparkContext.addPyFile(str(bundle.made()))
    for source in (RabbitMQStream, SegmentSource):
        session.dataSource.register(source)
    return session
