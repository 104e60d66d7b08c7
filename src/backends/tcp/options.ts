/** The options of `tcp()`, and their checks. */
import type {
  Algorithm,
  AlgorithmChoice,
  LibraryName,
  LinkOptions,
  NcclPin,
  TopologyOption,
} from "../../algorithms/index.ts";
import { assertOptions, type OptionKinds } from "../../api/option-kinds.ts";
import { withoutBrackets } from "../../api/world/launchers.ts";
import { type AgreedOptions, optionText } from "../../job/agreed-backend.ts";
import { compareCallsRule } from "../../job/before-calls.ts";
import { timeoutRule } from "../../job/checks.ts";

/** Options of `tcp`. */
export interface TcpOptions {
  /**
   * Address of this machine at which the other ranks reach this one. Left out: the loopback address where all ranks run on one
   * machine, else the address from which this machine reaches the job's store.
   */
  readonly host?: string | undefined;
  /**
   * Encrypts the messages between ranks: TLS 1.3 with a key for each rank that its job's store hands out. Off when left out: data
   * travels as it is, and only the connection is proved.
   */
  readonly tls?: boolean | undefined;
  /** Deadline of a call that gives none, in milliseconds; none when left out. */
  readonly timeoutMs?: number | undefined;
  /**
   * Comparison of calls among the ranks before data moves, in the job's store. `once`, when left out, compares every new kind of
   * call of a communicator, `always` every call, `off` none. Messages are not compared, nor are calls on a split of only some of
   * the ranks.
   */
  readonly compareCalls?: "off" | "once" | "always" | undefined;
  /** The algorithm of a collective, as in `sim({ algorithms })`. */
  readonly algorithms?: AlgorithmChoice | undefined;
  /** The library of the followed plans, as in `sim({ like })`; by default, jobs of up to 8 ranks follow the same plans. */
  readonly like?: LibraryName | undefined;
  /** The machine of the followed plans, as in `sim({ topology })`. */
  readonly topology?: TopologyOption | undefined;
  /** The pinned plans of NCCL, as in `sim({ plan })`. */
  readonly plan?: NcclPin | undefined;
  /** Latency and bandwidth between ranks, for `explain` and `estimate`; those of a loopback connection when left out. */
  readonly link?: LinkOptions | undefined;
}

/** Addresses to listen at, and none to connect to: all of a machine, a multicast group, the broadcast. */
const ofSeveral =
  /^(::ffff:)?([0.:]+|(22[4-9]|23\d)(\.\d+){3}|255\.255\.255\.255)$|^ff[\da-f]{2}:/i;

const kinds: OptionKinds<TcpOptions> = {
  host: {
    needed: "an address at which other ranks reach this machine",
    holds: (host) =>
      typeof host === "string" && host !== "" && !ofSeveral.test(withoutBrackets(host)),
  },
  ...{ tls: "boolean", timeoutMs: timeoutRule, compareCalls: compareCallsRule },
  ...{ algorithms: "object", like: true, topology: true, plan: "object", link: "object" },
};

/** Refuses invalid options; plans and links are checked by their constructors. */
export function assertTcpOptions(options: TcpOptions): void {
  assertOptions("tcp", options, kinds, { renamed: { checks: "compareCalls" } });
}

/** The options that all ranks pass alike, as texts. */
export function agreedOptions(options: TcpOptions): AgreedOptions {
  const { compareCalls = "once", algorithms = {}, like, topology, plan } = options;
  const chosen = Object.entries(algorithms).map(([collective, algorithm]) => [
    collective,
    typeof algorithm === "object" ? algorithmText(algorithm) : algorithm,
  ]);
  return {
    ...{ compareCalls, like, algorithms: optionText(Object.fromEntries(chosen)) },
    ...{ topology: optionText(topology), plan: optionText(plan) },
  };
}

/** An algorithm of the caller's own: two of one name may have other steps. */
const algorithmText = ({ name, write }: Algorithm): string => `${name}: ${write}`;
