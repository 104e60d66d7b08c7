/**
 * A plan that is pinned: what is forced on NCCL, in one shape for NCCL itself and for its twin.
 *
 * NCCL is told by variables, a configuration and a graph file; the twin plans with the same facts. What does not make
 * sense is refused here for both.
 */
import { InvalidArgumentError } from "../../api/errors.ts";
import { assertOptions, type OptionKinds } from "../../api/option-kinds.ts";
import { type NcclSettings, resolveSettings } from "./settings.ts";

/** What is pinned; what is left out is NCCL's choice. */
export interface NcclPin extends NcclSettings {
  /** Tree exists for all-reduces alone: other collectives keep NCCL's choice, as under `NCCL_ALGO=allreduce:tree`. */
  readonly algorithm?: "Ring" | "Tree" | undefined;
  /** NCCL_PROTO. */
  readonly protocol?: "LL" | "LL128" | "Simple" | undefined;
  /** Exactly so many channels: `minChannels` and `maxChannels` in one. */
  readonly channels?: number | undefined;
  /**
   * The ring of every channel, as the ranks in the order of its `next` pointers; or NCCL's graphs as the text of a graph
   * file (NCCL_GRAPH_FILE), with the rings and trees of every channel.
   */
  readonly rings?: readonly number[] | { readonly xml: string } | undefined;
}

const kinds: OptionKinds<NcclPin> = {
  ...{ algorithm: true, protocol: true, channels: true, minChannels: true, maxChannels: true },
  ...{ rings: true, buffSize: true, llBuffSize: true, ll128BuffSize: true },
};

const words = { algorithm: ["Ring", "Tree"], protocol: ["LL", "LL128", "Simple"] } as const;

/** The pin with `channels` spelled out, everything in it checked. */
export function resolvePin(pin: NcclPin = {}): Omit<NcclPin, "channels"> {
  assertOptions("plan of NCCL", pin, kinds, { path: "nccl" });
  const { algorithm, protocol, channels, rings, ...settings } = pin;
  for (const field of ["algorithm", "protocol"] as const) {
    const found = pin[field];
    if (found === undefined || (words[field] as readonly string[]).includes(found)) continue;
    throw fault(field, String(found), `one of ${words[field].join(", ")}`);
  }
  if (rings !== undefined) checkRings(rings);
  const limits = { ...settings, ...limitsOf(pin) };
  resolveSettings(limits);
  return { ...limits, algorithm, protocol, rings };
}

/** Refuses a pinned ring that is not one of all ranks of a world. */
export function assertRingSize({ rings }: NcclPin, ranks: number): void {
  if (rings === undefined || "xml" in rings || rings.length === ranks) return;
  throw fault("rings", `${rings.length} ranks`, `all ${ranks} of the world`);
}

function limitsOf({ channels, minChannels, maxChannels }: NcclPin): NcclSettings {
  if (channels === undefined) return {};
  if (minChannels === undefined && maxChannels === undefined) {
    return { minChannels: channels, maxChannels: channels };
  }
  throw fault("channels", "it beside minChannels or maxChannels", "one or the other");
}

function checkRings(rings: NonNullable<NcclPin["rings"]>): void {
  if (!Array.isArray(rings)) {
    if (typeof (rings as { readonly xml?: unknown }).xml === "string") return;
    throw fault("rings", typeof rings, "ranks in order, or { xml } with the text of a graph file");
  }
  const sorted = [...rings].sort((a, b) => a - b);
  if (rings.length > 0 && sorted.every((rank, i) => rank === i)) return;
  throw fault("rings", `[${rings.join(", ")}]`, "every rank from 0 on once");
}

function fault(field: string, found: string, needs: string): InvalidArgumentError {
  return new InvalidArgumentError(
    { headline: `plan of NCCL: ${field}: found ${found}, needs ${needs}` },
    { field: `nccl.${field}` },
  );
}
