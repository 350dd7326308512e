"""From rounds to the file and the table. A cell is broker version and queue type; numbers are medians over rounds."""

import os
import platform
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any, Final

from tools.bench.contestants import AGAIN, LOCAL, NAMES, PAIR, RELAY, REQUIRED, ROUTER, SHOVEL, SILENT

SMALL: Final = 1024
_MEASURES: Final = (
    "messages_per_s", "mb_per_s", "cpu_us_per_message", "broker_cpu_us_per_message", "rss_mb", "seconds", "seconds_all",
    "smaller_share",
)  # fmt: skip
_RATIOS: Final = {
    "ratio_to_amqp_shovel": (ROUTER, SHOVEL), "ratio_to_local_shovel": (ROUTER, LOCAL),
    "ratio_to_aio_pika": (ROUTER, RELAY), "ratio_to_no_journal": (ROUTER, SILENT),
    "ratio_of_two_to_one": (PAIR, ROUTER), "ratio_of_shovel_to_itself": (AGAIN, SHOVEL),
    "ratio_of_required_to_amqp_shovel": (REQUIRED, SHOVEL),
}  # fmt: skip

Round = dict[str, Any]
Cell = dict[str, Any]


def cells(rounds: Iterable[Round]) -> list[Cell]:
    """One for each version, type, size and number of queues, in the order of the rounds; dropped ones do not count."""
    grouped: dict[tuple[str, str, int, int], list[Round]] = {}
    for round_ in rounds:
        if not round_["dropped"]:
            grouped.setdefault(
                (round_["version"], round_["type"], round_["bytes"], round_.get("queues", 1)), []
            ).append(round_)
    return [_cell(key, group) for key, group in grouped.items()]


def _cell(key: tuple[str, str, int, int], rounds: list[Round]) -> Cell:
    cell: Cell = dict(zip(("version", "type", "bytes", "queues"), key, strict=True)) | {"rounds": len(rounds)}
    for name in NAMES:
        if results := [round_["results"][name] for round_ in rounds if "messages" in round_["results"].get(name, ())]:
            cell[name] = {
                measure: round(median(result[measure] for result in results), 2)
                for measure in _MEASURES if measure in results[0]
            }  # fmt: skip
    for ratio, names in _RATIOS.items():
        if values := [value for round_ in rounds if (value := _ratio(round_["results"], *names)) is not None]:
            cell[ratio] = round(median(values), 3)
            cell[f"{ratio}_range"] = [round(min(values), 3), round(max(values), 3)]
    return cell


def _ratio(results: dict[str, Any], first: str, second: str) -> float | None:
    """The speed of the first over that of the second in the same round."""
    ours, other = (results.get(name, {}).get("messages_per_s") for name in (first, second))
    return ours / other if ours and other else None


def summary(all_cells: list[Cell]) -> dict[str, float | None]:
    """The worst cell of each number; None where nothing measured it."""
    mixed = [cell for cell in all_cells if is_mixed(cell)]
    small = [cell for cell in all_cells if cell["bytes"] == SMALL and not is_mixed(cell)]
    large = [cell for cell in all_cells if cell["bytes"] != SMALL]
    worst: dict[str, float | None] = {ratio: _worst(min, [cell.get(ratio) for cell in small]) for ratio in _RATIOS}
    for measure in ("cpu_us_per_message", "rss_mb"):
        worst[measure] = _worst(max, [cell.get(ROUTER, {}).get(measure) for cell in small])
    worst["mixed_ratio_to_amqp_shovel"] = _worst(min, [cell.get("ratio_to_amqp_shovel") for cell in mixed])
    worst["mixed_cpu_us_per_message"] = _worst(max, [cell.get(ROUTER, {}).get("cpu_us_per_message") for cell in mixed])
    worst["large_ratio_to_amqp_shovel"] = _worst(min, [cell.get("ratio_to_amqp_shovel") for cell in large])
    worst["large_rss_mb"] = _worst(max, [cell.get(ROUTER, {}).get("rss_mb") for cell in large])
    return worst


def is_mixed(cell: Cell) -> bool:
    """Whether its letters died in several queues."""
    return int(cell.get("queues", 1)) > 1


def _worst(choose: Callable[[list[float]], float], values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return choose(known) if known else None


def machine() -> dict[str, Any]:
    """What the numbers depend on; nothing that names this machine."""
    return {
        "cpu": _from_proc("/proc/cpuinfo", "model name"),
        "cores": len(os.sched_getaffinity(0)),
        "memory": _from_proc("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: _installed(name) for name in ("dlx-router", "aio-pika", "aiormq", "uvloop")},
        "load_before": round(os.getloadavg()[0], 2),
    }


def _from_proc(path: str, field: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == field:
            return value.strip()
    return "unknown"


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def table(all_cells: list[Cell]) -> str:
    """The cells for a person: a line for each contestant, speeds as medians."""
    head = f"{'broker':8}{'queues':9}{'body':>8}  {'contestant':18}{'msg/s':>9}{'MB/s':>9}"
    head += f"{'CPU us':>9}{'broker us':>11}{'RSS MB':>9}{'router is':>13}"
    return "\n".join([head, *(_line(cell, name) for cell in all_cells for name in NAMES if name in cell)])


def _line(cell: Cell, name: str) -> str:
    figures = cell[name]
    ratio = next((cell.get(key) for key, names in _RATIOS.items() if names == (ROUTER, name)), None)
    body = "mixed" if is_mixed(cell) else f"{cell['bytes'] // 1024} KiB"
    measures = ("cpu_us_per_message", "broker_cpu_us_per_message", "rss_mb")
    cpu, broker, rss = (f"{figures[measure]:.0f}" if measure in figures else "-" for measure in measures)
    speed = f"{figures['messages_per_s']:>9,.0f}{figures['mb_per_s']:>9.1f}"
    line = f"{cell['version']:8}{cell['type']:9}{body:>8}  {name:18}{speed}{cpu:>9}{broker:>11}{rss:>9}"
    return line + (f"{ratio:>11.2f} x" if ratio else "")


def log(line: str) -> None:
    """Progress on stderr, so that the table alone is on stdout."""
    print(line, file=sys.stderr, flush=True)
