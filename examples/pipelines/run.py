"""Runs the declarative pipeline once over what is new in the topics.

    python generate.py
    python run.py --data data
    python generate.py --start 2026-03-01T13:00
    python run.py --data data

It makes missing topics, and then calls `spark-pipelines run` with what a pipeline needs to be run again: a catalogue
that outlives the run, and places for tables and checkpoints. Everything is in the directory `data`; the second run goes
on where the first one stopped. The brokers are those in the variable OTTLA_BOOTSTRAP, else 127.0.0.1:9092.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import steps
import yaml

from ottla.spark.java import java_home

PROJECT = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("data"), help="tables, checkpoints, catalogue (%(default)s)")
    parser.add_argument(
        "--remote", default="local[2]", help="where Spark runs; sc://... is a Connect server (%(default)s)"
    )
    parser.add_argument("arguments", nargs="*", help="for spark-pipelines, after --, such as --full-refresh-all")
    options = parser.parse_args()
    data: Path = options.data.resolve()
    steps.make_topics()
    data.mkdir(parents=True, exist_ok=True)
    write_settings(data / "conf")
    spec = write_spec(data)
    command = [pipelines_command(), "run", "--spec", str(spec), "--remote", options.remote, *options.arguments]
    began = time.monotonic()
    # Spark's catalogue leaves a log where it is started.
    code = subprocess.run(command, cwd=data, env=environment(data), check=False).returncode
    if code:
        raise SystemExit(f"spark-pipelines failed with exit code {code}; run it again to go on from where it stopped.")
    print(f"Done in {time.monotonic() - began:.0f} s. Tables are in {data / 'lake'}.")
    print(f"To compare them with the topics: python history.py --data {options.data}")


def write_spec(data: Path) -> Path:
    """The project's spec, with its storage in this directory."""
    spec = yaml.safe_load((PROJECT / "spark-pipeline.yml").read_text())
    spec["storage"] = (data / "checkpoints").as_uri()
    for library in spec["libraries"]:
        library["glob"]["include"] = os.path.relpath(PROJECT / library["glob"]["include"], data)
    written = data / "spark-pipeline.yml"
    written.write_text(yaml.safe_dump(spec, sort_keys=False))
    return written


def write_settings(conf: Path) -> None:
    """What cannot stand in the spec, because it holds for the whole of Spark.

    In a file rather than in `--conf`: of more than ten settings, its own included, Spark 4.3 passes on the last few.
    """
    data = conf.parent
    given = {
        "spark.sql.warehouse.dir": (data / "lake").as_uri(),
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={data / 'catalogue'};create=true",
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{key} {value}\n" for key, value in given.items()))


def pipelines_command() -> str:
    """The one beside this Python, whose workers have the package."""
    beside = Path(sys.executable).parent / "spark-pipelines"
    found = str(beside) if beside.exists() else shutil.which("spark-pipelines")
    if found is None:
        raise SystemExit("spark-pipelines is not installed: pip install 'ottla[spark]'")
    return found


def environment(data: Path) -> dict[str, str]:
    """Workers run this Python and find the steps, wherever they are started."""
    given = {**os.environ, "PYSPARK_PYTHON": sys.executable, "OTTLA_BOOTSTRAP": steps.bootstrap()}
    given["SPARK_CONF_DIR"] = str(data / "conf")
    given["PYTHONPATH"] = os.pathsep.join(filter(None, [str(PROJECT), os.environ.get("PYTHONPATH")]))
    given.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = java_home()
    if home is not None:
        given["JAVA_HOME"] = str(home)
    return given


if __name__ == "__main__":
    main()
