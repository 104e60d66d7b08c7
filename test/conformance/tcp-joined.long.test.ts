/**
 * The suite on ranks of the TCP backend in one process, each with a session and sockets of its own; without encryption, with it,
 * and with another algorithm.
 */
import { type ConformanceRanks, conformanceOfRanks, type UseRanks } from "twinccl/testing";
import { afterAll } from "vitest";
import { KeptOpen } from "../support/kept-open.ts";
import { crossed } from "../support/messages.ts";
import { TcpJob, type TcpJobOptions } from "../support/tcp-jobs.ts";
import { parts } from "./parts.ts";
import { testAll } from "./suite.ts";

function jobs(options: TcpJobOptions): UseRanks {
  const kept = new KeptOpen((size) => TcpJob.open(size, options));
  afterAll(() => kept.close());
  return (size, use) =>
    kept.use(size, (job) => {
      const ranks: ConformanceRanks = {
        size,
        each: async (part, ...args) => {
          const play = parts[part] as (...given: unknown[]) => unknown;
          const results = await job.each(async (comm) => play(comm, ...crossed(args)));
          return crossed(results) as never;
        },
      };
      return use(ranks);
    });
}

function conforms(name: string, options: TcpJobOptions, sizes: readonly number[]): void {
  const cases = conformanceOfRanks({
    backend: "tcp",
    use: jobs(options),
    useCompared: jobs({ ...options, compareCalls: "always" }),
    sizes,
    capabilities: {
      hostArrays: true,
      virtualTime: false,
      deterministic: true,
      symmetricMemory: true,
      ownStreams: true,
    },
  });
  testAll(name, cases);
}

conforms("tcp in one process", {}, [1, 2, 3, 5, 8]);
conforms("tcp with TLS", { tls: true }, [2, 3]);
conforms("tcp, linear", { algorithms: { allReduce: "linear" } }, [4]);
