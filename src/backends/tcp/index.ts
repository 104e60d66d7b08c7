/** The TCP backend: one rank per process, on any number of machines, without GPUs. Needs Node.js. */
import { linkOf, plannersOf } from "../../algorithms/index.ts";
import { type Backend, UnsupportedError } from "../../api/index.ts";
import { joinLaunched, launchedRank } from "../../job/launcher-rendezvous.ts";
import { openAlone, openJoined } from "./open.ts";
import { agreedOptions, assertTcpOptions, type TcpOptions } from "./options.ts";
import type { SessionSettings } from "./session.ts";

export type { TcpOptions } from "./options.ts";

/** Latency and bandwidth of a connection within one machine, about. */
const loopback = { latencyNs: 30_000, gigabytesPerSecond: 1.5 } as const;

/**
 * Processes without GPUs: each is one rank, and runs its part of the same programs that the simulation follows, over TCP. Results
 * have the bits of the simulation. For `connect`, under the same launchers as `nccl()`.
 *
 * @throws InvalidArgumentError for an invalid option.
 * @example
 * const comm = await connect({ backend: tcp() });
 */
export function tcp(options: TcpOptions = {}): Backend {
  assertTcpOptions(options);
  const { host, tls = false, timeoutMs, compareCalls = "once" } = options;
  const plannerOf = plannersOf(options, "tcp");
  const link = linkOf(options.link ?? loopback, "tcp");
  const agreed = agreedOptions(options);
  const settingsOf = (size: number): SessionSettings => ({
    planner: plannerOf(size),
    link,
    timeoutMs,
    lossGraceMs: 2_000,
  });
  return {
    name: "tcp",
    probe: ({ size }) =>
      size === 1
        ? { ok: true, reason: "needs nothing" }
        : { ok: false, reason: "tcp has one rank in each process: use connect" },
    open: async ({ size, name }) => {
      if (size !== 1) throw manyRanksError(size);
      return openAlone(settingsOf(1), name);
    },
    join: async (request) => {
      const job = launchedRank(request);
      if (job === undefined) return openAlone(settingsOf(1), request.name);
      const settings = settingsOf(job.size);
      return joinLaunched(job, request, {
        name: "tcp",
        options: agreed,
        find: () => Promise.resolve(),
        open: (membership) =>
          openJoined(settings, { host, tls, compareCalls, job }, membership, request),
      });
    },
  };
}

function manyRanksError(size: number): UnsupportedError {
  return new UnsupportedError(
    {
      headline: `createWorld: tcp with ${size} ranks: it has one rank in each process`,
      hint: "use connect({ backend: tcp() }) in each process: twinccl launch -n RANKS script.mjs",
    },
    { size, field: "size" },
  );
}
