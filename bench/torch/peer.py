"""torch.distributed as twinccl is measured against it: one process per GPU, over NCCL.

Reads commands from standard input, a line each, and answers each with a line of JSON; the protocol is that of
bench/native/call.hpp. Needs RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT, and MAX_BYTES as its argument.
"""

import json
import os
import sys
import time

os.environ["NCCL_NVLS_ENABLE"] = "0"

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

size = int(os.environ["WORLD_SIZE"])
rank = int(os.environ["RANK"])
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))


class Command:
    """One line: VERB COLLECTIVE GRAPH_CALLS SYMMETRIC COUNT ITERATIONS WARMUP CHECK [TRAFFIC...]."""

    def __init__(self, line):
        words = line.split()
        self.verb, self.collective = words[:2]
        numbers = [int(word) for word in words[2:]]
        self.graph_calls, self.symmetric, self.count, self.iterations, self.warmup, self.check = numbers[:6]
        traffic = numbers[6:]
        self.traffic = [traffic[at * size : (at + 1) * size] for at in range(size)] if traffic else []


def call_of(c, a, b):
    """The call, ready to be issued, and its result."""
    n = c.count
    if c.collective == "allReduce":
        return (lambda: dist.all_reduce(a[:n])), a[:n]
    if c.collective == "broadcast":
        return (lambda: dist.broadcast(a[:n], 0)), a[:n]
    if c.collective == "allGather":
        out, own = b[: n * size], a[:n]
        return (lambda: dist.all_gather_into_tensor(out, own)), out
    if c.collective == "reduceScatter":
        out, whole = b[:n], a[: n * size]
        return (lambda: dist.reduce_scatter_tensor(out, whole)), out
    if c.collective == "allToAll":
        out, whole = b[: n * size], a[: n * size]
        return (lambda: dist.all_to_all_single(out, whole)), out
    if c.collective == "allToAllv":
        sent = c.traffic[rank]
        received = [row[rank] for row in c.traffic]
        out, whole = b[: sum(received)], a[: sum(sent)]
        return (lambda: dist.all_to_all_single(out, whole, received, sent)), out
    raise ValueError(f"no such collective: {c.collective}")


class Graph:
    """Calls recorded once."""

    def __init__(self, call, calls):
        self.graph = torch.cuda.CUDAGraph()
        # Other threads of torch query events meanwhile, which a global capture would forbid.
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            for _ in range(calls):
                call()

    def launch(self):
        self.graph.replay()


def barrier(scratch):
    dist.all_reduce(scratch)
    torch.cuda.synchronize()


def measure(c, call, scratch):
    for _ in range(c.warmup):
        call()
    torch.cuda.synchronize()
    launches = c.iterations // c.graph_calls if c.graph_calls else 0
    graph = Graph(call, c.graph_calls) if launches else None
    if graph:
        graph.launch()
    barrier(scratch)
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    began = time.perf_counter_ns()
    begin.record()
    if graph:
        for _ in range(launches):
            graph.launch()
    else:
        for _ in range(c.iterations):
            call()
    end.record()
    torch.cuda.synchronize()
    wall = (time.perf_counter_ns() - began) / 1000 / c.iterations
    return {"wall_us": wall, "event_us": 1000 * begin.elapsed_time(end) / c.iterations}


def latency(c, call, scratch):
    graph = Graph(call, 1) if c.graph_calls else None
    issue = graph.launch if graph else call
    barrier(scratch)
    samples = []
    for turn in range(c.warmup + c.iterations):
        began = time.perf_counter_ns()
        issue()
        torch.cuda.synchronize()
        if turn >= c.warmup:
            samples.append((time.perf_counter_ns() - began) / 1000)
    samples.sort()
    return {"median_us": samples[len(samples) // 2], "p99_us": samples[int(0.99 * (len(samples) - 1))]}


def is_right(c, call, result, a, b):
    """Ones in, one call, and the first, middle and last element must be the number of contributions."""
    a.fill_(0.0 if c.collective == "broadcast" and rank != 0 else 1.0)
    b.zero_()
    call()
    expected = float(size) if c.collective in ("allReduce", "reduceScatter") else 1.0
    found = [result[at].item() for at in (0, len(result) // 2, -1)] if len(result) else []
    # Zeros again, so that no repeated sum ever grows.
    a.zero_()
    torch.cuda.synchronize()
    return all(value == expected for value in found)


def answer(line, a, b, scratch):
    c = Command(line)
    if c.symmetric:
        raise ValueError("torch.distributed is not measured with symmetric windows")
    call, result = call_of(c, a, b)
    if c.verb == "latency":
        call()
        return latency(c, call, scratch)
    times = measure(c, call, scratch)
    times["right"] = is_right(c, call, result, a, b) if c.check else None
    return times


def library():
    """The file of the NCCL that this process has loaded."""
    with open("/proc/self/maps") as maps:
        paths = {line.split()[-1] for line in maps if "libnccl.so" in line}
    return sorted(paths)[0] if paths else "linked into torch"


def version():
    major, minor, patch = torch.cuda.nccl.version()
    return 10000 * major + 100 * minor + patch


def say(reply):
    print(json.dumps(reply), flush=True)


def main():
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    length = int(sys.argv[1]) // 4
    a, b = (torch.zeros(length, dtype=torch.float32, device=device) for _ in range(2))
    scratch = torch.zeros(1, dtype=torch.float32, device=device)
    barrier(scratch)
    say({"hello": "torch", "torch": torch.__version__, "nccl": version(), "library": library()})
    for line in sys.stdin:
        if line.strip() == "quit":
            break
        try:
            say(answer(line, a, b, scratch))
        except Exception as error:  # noqa: BLE001
            say({"error": f"{type(error).__name__}: {error}".split("\n")[0]})
    dist.destroy_process_group()


try:
    main()
except Exception as error:  # noqa: BLE001
    say({"error": f"{type(error).__name__}: {error}".split("\n")[0]})
    sys.exit(1)
