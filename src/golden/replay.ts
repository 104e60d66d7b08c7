/**
 * Replays the calls of a file on any backend, with the public interface only: `createWorld`, `alloc`, `subarray` and the
 * collective.
 */
import { blockLengths, inPlaceOffset, postCall } from "../api/collectives/call-layout.ts";
import {
  type Backend,
  BackendUnavailableError,
  CommError,
  type Communicator,
  createWorld,
  type HostArray,
  type World,
  WorldError,
} from "../api/index.ts";
import {
  type GoldenCase,
  isSymmetric,
  type NcclSetup,
  operatorOf,
  sentBlocks,
  setupOf,
} from "./case.ts";
import type { GoldenPlan } from "./format.ts";
import { passingInputOf } from "./inputs.ts";
import { canonicalOutputs } from "./outputs.ts";

/** A backend with NCCL's set-up for a case. */
export type BackendFor = (setup: NcclSetup) => Backend | Promise<Backend>;

/** The outcome of one call. */
export interface Outcome {
  /** Canonical output by rank, `undefined` where a rank has none; `undefined` when the call failed. */
  readonly outputs: readonly (HostArray | undefined)[] | undefined;
  /** The reason of the refusal or failure. */
  readonly failure: CommError | undefined;
  /** The plan that the backend explains for the call, valid until the next one. */
  readonly plan: () => GoldenPlan | undefined;
}

/** Called for each completed case with its index; cases of one world are adjacent. */
export type OnCase = (index: number, outcome: Outcome) => void | Promise<void>;

/** Makes every call, in worlds of the right size that are opened once for each set-up. */
export async function replay(
  cases: readonly GoldenCase[],
  backendFor: BackendFor,
  onCase: OnCase,
): Promise<void> {
  for (const [setup, indices] of bySetup(cases)) {
    const backend = await backendFor(setup);
    let world: World | undefined;
    try {
      for (const index of indices) {
        const golden = cases[index] as GoldenCase;
        try {
          world ??= await createWorld({ backend, size: golden.ranks, name: "golden" });
          const plan = explainedPlan.bind(undefined, world, golden);
          const found = await world.run((comm) => outputOf(comm, golden));
          const outputs = canonicalOutputs(found, golden);
          await onCase(index, { outputs, failure: undefined, plan });
        } catch (error) {
          const failure = failureOf(error);
          // A world cannot be used after a failed call.
          await world?.close();
          world = undefined;
          await onCase(index, { outputs: undefined, failure, plan: () => undefined });
        }
      }
    } finally {
      await world?.close();
    }
  }
}

/** Indices of the cases of each set-up and number of ranks. */
export function bySetup(cases: readonly GoldenCase[]): Iterable<readonly [NcclSetup, number[]]> {
  const groups = new Map<string, readonly [NcclSetup, number[]]>();
  for (const [index, golden] of cases.entries()) {
    const setup = setupOf(golden);
    const key = JSON.stringify([golden.ranks, setup]);
    let group = groups.get(key);
    if (group === undefined) {
      group = [setup, []];
      groups.set(key, group);
    }
    group[1].push(index);
  }
  return groups.values();
}

/** The error of a failed call; errors from outside of the library are bugs, and are rethrown. */
export function failureOf(error: unknown): CommError {
  const cause = error instanceof WorldError ? error.cause : error;
  if (cause instanceof CommError && !(cause instanceof BackendUnavailableError)) return cause;
  throw error;
}

/** The contents of a rank at the end; `undefined` where it has no result. */
export async function outputOf(
  comm: Communicator,
  golden: GoldenCase,
): Promise<HostArray | undefined> {
  const { collective, dtype, count, root, inPlace, offset } = golden;
  const options = { symmetric: isSymmetric(golden) };
  const sent = comm.alloc(dtype, offset + sentBlocks(golden) * count, options);
  const received = inPlace ? undefined : comm.alloc(dtype, offset + count, options);
  const send = sent.subarray(offset);
  send.copyFrom(passingInputOf(golden, comm.rank));
  const call = { ranks: golden.ranks, root: root ?? 0, count };
  const own = Math.max(0, -(inPlaceOffset(collective, call, comm.rank) ?? 0));
  const recv = received?.subarray(offset) ?? send.subarray(own, own + count);
  await postCall(comm, collective, { send, recv, op: operatorOf(golden), root: call.root });
  const hasResult = blockLengths(collective, call, comm.rank).recv.length > 0;
  const output = hasResult ? await recv.toHost() : undefined;
  sent.dispose();
  received?.dispose();
  return output;
}

/** The plan of a case as a world or a communicator explains it. */
export function explainedPlan(
  explainer: Pick<World, "explain">,
  golden: GoldenCase,
): GoldenPlan | undefined {
  const { collective, dtype, count, root, offset } = golden;
  const symmetric = isSymmetric(golden) && { sendOffset: offset, recvOffset: offset };
  const question = { collective, dtype, op: operatorOf(golden), count, root, symmetric };
  const { algorithm, protocol, channels } = explainer.explain(question);
  if (protocol === undefined) return undefined;
  return { algorithm: algorithm.replace(` ${protocol}`, ""), protocol, channels };
}
