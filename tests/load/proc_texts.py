"""What /proc and a cgroup print of a made server, in the format of Linux 6.1."""

from __future__ import annotations

MIB = 2**20


def look(
    *,
    at_s: float = 1000.0,
    name: str = "llama-server",
    swapped_mib: int = 0,
    own_mib: int = 900,
    mapped_mib: int = 4000,
    resident_mib: int = 4000,
    faults: int = 120,
    read_mib: int | None = 4000,
    cpu_s: float = 50.0,
    limit_mib: int | None = None,
    refaults: int = 0,
    pid: int = 1,
) -> dict[str, str]:
    """Text by path; a limit of None is what a container without one shows."""
    ticks = round(100 * cpu_s)
    files = {
        "/proc/uptime": f"{at_s:.2f} 99999.10\n",
        "/proc/meminfo": "MemTotal:       65536000 kB\nMemFree:         1000000 kB\n",
        f"/proc/{pid}/stat": f"{pid} ({name}) S 1 7 7 0 -1 4194560 9000 0 {faults} 0 {ticks} 0 0 0 20 0 9 0 100\n",
        f"/proc/{pid}/status": f"Name:\t{name}\nVmRSS:\t {1024 * (own_mib + resident_mib)} kB\n"
        f"RssAnon:\t {1024 * own_mib} kB\nVmSwap:\t {1024 * swapped_mib} kB\n",
        f"/proc/{pid}/smaps": "55d0c0000000-55d0c0400000 r-xp 00000000 08:01 17 /app/llama-server\n"
        "Size: 4096 kB\nRss: 4000 kB\n"
        f"7f0000000000-7f00f0000000 r--s 00000000 08:01 42         /models/m.gguf\nSize:    {1024 * mapped_mib} kB\n"
        f"Rss:     {1024 * resident_mib} kB\nSwap: 0 kB\n"
        "7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0          [stack]\nSize: 132 kB\nRss: 40 kB\n",
        "/sys/fs/cgroup/memory.max": "max\n" if limit_mib is None else f"{limit_mib * MIB}\n",
        "/sys/fs/cgroup/memory.current": f"{(own_mib + resident_mib) * MIB}\n",
        "/sys/fs/cgroup/memory.stat": f"anon 1\nworkingset_refault_anon 7\nworkingset_refault_file {refaults}\n",
        "/sys/fs/cgroup/memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
    }
    if read_mib is not None:
        files[f"/proc/{pid}/io"] = f"rchar: 1\nwchar: 2\nread_bytes: {read_mib * MIB}\nwrite_bytes: 0\n"
    return files


def printed(*looks: dict[str, str]) -> str:
    """As ``grep -s ""`` prints such files, one look after the other."""
    return "".join(f"{path}:{line}\n" for files in looks for path, text in files.items() for line in text.splitlines())


def processors(
    *,
    at_s: float = 1000.0,
    cpus: int = 4,
    busy_s: float = 500.0,
    stolen_s: float = 0.0,
    cpu_s: float = 50.0,
    threads: dict[int, tuple[float, float]] | None = None,
    allowed: str | None = None,
    limit: str | None = "max 100000",
    throttled_s: float = 0.0,
    pid: int = 1,
) -> dict[str, str]:
    """A look with what the processors did, spread evenly; ``threads`` have the seconds that each ran and waited."""
    ticks, stolen = round(100 * busy_s / cpus), round(100 * stolen_s / cpus)
    files = look(at_s=at_s, cpu_s=cpu_s, pid=pid)
    if allowed is not None:
        files[f"/proc/{pid}/status"] += f"Cpus_allowed_list:\t{allowed}\n"
    lines = [f"cpu{number} {ticks} 0 0 900 7 0 0 {stolen} 0 0" for number in range(cpus)]
    files["/proc/stat"] = "\n".join(
        [f"cpu  {cpus * ticks} 0 0 3600 28 0 0 {cpus * stolen} 0 0", *lines, "intr 9 9", ""]
    )
    for thread, (ran, waited) in (threads or {}).items():
        files[f"/proc/{pid}/task/{thread}/schedstat"] = f"{round(1e9 * ran)} {round(1e9 * waited)} 77\n"
    if limit is not None:
        files["/sys/fs/cgroup/cpu.max"] = f"{limit}\n"
        files["/sys/fs/cgroup/cpu.stat"] = f"usage_usec 9\nnr_throttled 3\nthrottled_usec {round(1e6 * throttled_s)}\n"
    return files
