/** The options of `tcp()`. */

import { type TcpOptions, tcp } from "twinccl/tcp";
import { expect, test } from "vitest";
import { catalogue } from "../../../../src/algorithms/index.ts";
import { agreedOptions } from "../../../../src/backends/tcp/options.ts";

const ofNone = ["", "0.0.0.0", "0", "::", "::0", "0:0:0:0:0:0:0:0", "::ffff:0.0.0.0", "[::]"];
const ofGroups = ["224.0.0.1", "239.1.2.3", "::ffff:224.0.0.1", "ff02::1", "255.255.255.255"];

test.each([...ofNone, ...ofGroups])(
  "the host %j, which other ranks cannot reach, is refused",
  (host) => {
    expect(() => tcp({ host })).toThrow(
      expect.objectContaining({
        ...{ code: "ERR_COMM_ARG", field: "host" },
        message: expect.stringContaining("other ranks reach this machine"),
      }),
    );
  },
);

test("a wrong way to compare calls is refused with what each way does", () => {
  expect(() => tcp({ compareCalls: "on" as "once" })).toThrow(
    expect.objectContaining({
      ...{ code: "ERR_COMM_ARG", field: "compareCalls" },
      hint: '"once" compares every new kind of call between processes, "always" every call, "off" none',
    }),
  );
});

test.each(["127.0.0.1", "10.0.0.7", "223.0.0.1", "240.0.0.1", "::1", "fe80::1", "host-0"])(
  "the host %j is taken",
  (host) => {
    expect(tcp({ host }).name).toBe("tcp");
  },
);

const like = "nccl-2.28" as const;
const socket = { kind: "socket", gigabitsPerSecond: 10 } as const;

test.each<[string, unknown]>([
  ["like", { like: "nccl-9" }],
  ["topology", { topology: "h200x8" }],
  ["topology: found", { like, topology: "x" }],
  ["topology.hosts", { like, topology: { hosts: 0, gpusPerHost: 1, network: socket } }],
  ["topology.network.kind", { like, topology: { hosts: 2, gpusPerHost: 1, network: { kind: 1 } } }],
  ["topology.xml", { like, topology: { xml: 1 } }],
  ["topology.cpu", { like, topology: { xml: "", cpu: "arm" } }],
  ["algorithms.allReduce", { algorithms: { allReduce: "x" } }],
  ["algorithms.allReduce.name", { algorithms: { allReduce: {} } }],
  ["algorithms.allReduces", { algorithms: { allReduces: "ring" } }],
  ["link.latencyNs", { link: { latencyNs: -1 } }],
  ["link.latency", { link: { latency: 1 } }],
])("the error of %s names the backend", (field, options) => {
  const start = `tcp: ${field}`;
  expect(() => tcp(options as TcpOptions)).toThrow(
    expect.toSatisfy(({ message }) => message.startsWith(start)),
  );
});

const { ring } = catalogue.allReduce;
const own = { ...ring, name: "own" };

test("options that decide no plans, are left out, or stand in another order have the same text", () => {
  const usual = agreedOptions({});
  const others = { host: "node0", tls: true, timeoutMs: 7, algorithms: {}, plan: {} };
  expect(agreedOptions(others)).toEqual(usual);
  const one = { like, plan: { channels: 4, protocol: "LL" }, algorithms: { reduce: "chain" } };
  const same = { algorithms: { reduce: "chain" }, plan: { protocol: "LL", channels: 4 }, like };
  expect(agreedOptions(one as TcpOptions)).toEqual(agreedOptions(same as TcpOptions));
  expect(agreedOptions({ algorithms: { allReduce: own } })).toEqual(
    agreedOptions({ algorithms: { allReduce: { ...own } } }),
  );
});

test("options that decide other plans have another text", () => {
  const options: readonly TcpOptions[] = [
    {},
    { like },
    { like: "nccl-2.29" },
    { like, topology: "h200-hosts" },
    { like, topology: { hosts: 2, gpusPerHost: 1, network: socket } },
    { like, topology: { hosts: 3, gpusPerHost: 1, network: socket } },
    { plan: { channels: 4 } },
    { plan: { channels: 5 } },
    { algorithms: { allReduce: "chain" } },
    { algorithms: { reduce: "chain" } },
    { algorithms: { allReduce: own } },
    { algorithms: { allReduce: { ...own, name: "other" } } },
    { algorithms: { allReduce: { ...own, write: () => undefined } } },
  ];
  const texts = options.map((each) => JSON.stringify(agreedOptions(each)));
  expect(new Set(texts).size).toBe(options.length);
});
