/** NCCL's log of its plans: each kind of line, and the file it is read from. */
import { appendFileSync, existsSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { describe, expect, test } from "vitest";
import {
  communicatorOfLines,
  PlanLogFile,
  PlanRecord,
  planOfLine,
} from "../../../../../src/backends/nccl/process/plan-log.ts";

const line = (text: string, device = 0): string =>
  `node:71:${71 + device} [${device}] NCCL INFO ${text}`;

const allReduce = line(
  "AllReduce: 4194304 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}",
);

describe("a line about a call", () => {
  test.each([
    [allReduce, ["allReduce", 4194304, "Ring", "Simple", 24]],
    [
      line("AllReduce: 4 Bytes -> Algo TREE proto LL channel{Lo..Hi}={0..0}"),
      ["allReduce", 4, "Tree", "LL", 1],
    ],
    [
      line("ReduceScatter: 40000 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={3..7}"),
      ["reduceScatter", 40000, "Ring", "LL128", 5],
    ],
    [
      line("Broadcast: 1 Bytes -> Algo NVLS proto SIMPLE channel{Lo..Hi}={0..15}"),
      ["broadcast", 1, "NVLS", "Simple", 16],
    ],
    [
      line(
        "AllReduce [Symmetric]: 65536 Bytes -> Kernel AllReduce_RSxLD_AGxST nchannels 8 nthreads 512 nWorks 1",
      ),
      ["allReduce", 65536, "Symmetric", "LD", 8],
    ],
    [
      line(
        "AllReduce [Symmetric]: 64 Bytes -> Kernel AllReduce_AGxLL_R nchannels 1 nthreads 512 nWorks 1",
      ),
      ["allReduce", 64, "Symmetric", "LL", 1],
    ],
    [
      line(
        "ReduceScatter [Symmetric]: 64 Bytes -> Kernel ReduceScatter_LL nchannels 2 nthreads 512 nWorks 1",
      ),
      ["reduceScatter", 64, "Symmetric", "LL", 2],
    ],
    [
      line(
        "AllGather [Symmetric]: 64 Bytes -> Kernel AllGather_ST nchannels 2 nthreads 512 nWorks 1",
      ),
      ["allGather", 64, "Symmetric", "AllGather_ST", 2],
    ],
  ])("%s", (text, [collective, bytes, algorithm, protocol, channels]) => {
    expect(planOfLine(text)).toEqual({ collective, bytes, algorithm, protocol, channels });
  });

  test.each([
    line("Channel 00/24 : 0 1"),
    "AllReduce: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}",
    line("SendRecv: 4 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}"),
    "",
  ])("is not: %s", (text) => {
    expect(planOfLine(text)).toBeUndefined();
  });
});

const start = [
  line("Trees [0] -1/-1/-1->2->1 [1] 1/-1/-1->2->-1", 2),
  line("Channel 00/02 : 0 2 1"),
  line("Channel 01/02 : 0 1 2"),
  line("Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1", 0),
  line("Ring 00 : 1 -> 0 -> 2"),
  line("Trees [0] 2/-1/-1->1->0 [1] 0/-1/-1->1->2", 1),
  line(
    "2 coll channels, 2 collnet channels, 0 nvls channels, 2 p2p channels, 2 p2p channels per peer",
  ),
];

describe("the lines of a start", () => {
  test("give channels, rings and chains, whatever the order of the ranks", () => {
    expect(communicatorOfLines(start)).toEqual({
      channels: 2,
      rings: [
        [0, 2, 1],
        [0, 1, 2],
      ],
      chains: [
        [2, 1, 0],
        [0, 1, 2],
      ],
    });
  });

  test("of one rank alone give no chains", () => {
    const own = start.filter(
      (text) => !text.includes("[1]") || text.includes("[1] NCCL") === false,
    );
    const alone = own.filter((text) => text.includes(" [0] NCCL"));
    expect(communicatorOfLines(alone)?.chains).toEqual([[], []]);
  });

  test("are empty without channels", () => {
    expect(communicatorOfLines([allReduce])).toBeUndefined();
  });
});

test("the file is private, is read line by line as it grows, and is removed", () => {
  const log = new PlanLogFile();
  const path = log.variables["NCCL_DEBUG_FILE"] as string;
  try {
    expect(log.variables).toMatchObject({
      NCCL_DEBUG: "INFO",
      NCCL_DEBUG_SUBSYS: "INIT,GRAPH,TUNING",
    });
    expect(statSync(dirname(path)).mode & 0o777).toBe(0o700);
    const record = new PlanRecord();
    appendFileSync(path, `${start.join("\n")}\n`);
    record.read(log, "world");
    expect(record.communicators.get("world")?.channels).toBe(2);
    expect(record.take()).toEqual([]);
    appendFileSync(path, allReduce.slice(0, 40));
    record.read(log, "world");
    expect(record.take()).toEqual([]);
    appendFileSync(path, `${allReduce.slice(40)}\nsomething else\n`);
    record.read(log, "half");
    const [plan, ...more] = record.take();
    expect(plan).toMatchObject({ comm: "half", collective: "allReduce", channels: 24 });
    expect(more).toEqual([]);
    expect(record.take()).toEqual([]);
  } finally {
    log.close();
  }
  expect(existsSync(dirname(path))).toBe(false);
  expect(() => log.newLines()).toThrow(
    expect.objectContaining({
      code: "ERR_COMM_BACKEND",
      message: expect.stringMatching(/^nccl: NCCL's log cannot be read: EBADF/),
    }),
  );
});
