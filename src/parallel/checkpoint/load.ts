/** Reads the states of a save, and restores the parts of a job from them. */

import { type Communicator, dtypeInfo } from "../../api/index.ts";
import { CheckpointError } from "../errors.ts";
import { assertSameOnRanks } from "../rank-comparison.ts";
import {
  elementsOf,
  type RankStateful,
  type State,
  type Stateful,
  type StateTensor,
} from "../state.ts";
import { Fault, FileFault, onAllRanks } from "./failures.ts";
import type { CheckpointFiles } from "./files.ts";
import { committedSaves, type Manifest, manifestPath, readManifest } from "./manifest.ts";
import { ownStates, readRankFile, type States, sharedTensors, takePieces } from "./rank-file.ts";
import { decodeTensors } from "./safetensors.ts";

/** The data of a save. */
export interface LoadedStates {
  readonly manifest: Manifest;
  readonly shared: States;
  readonly perRank: readonly States[];
  /** The ranks with states in `perRank`: this one alone, or all that wrote the save. */
  readonly of: "own" | "every rank's";
}

/** Names of parts, in order. */
export interface PartNames {
  readonly shared: readonly string[];
  readonly perRank: readonly string[];
}

/**
 * The states of save number `save`, or of the newest complete one; `undefined` when there is none. If as many ranks wrote it,
 * each reads only its own, unless every rank's are required.
 */
export async function loadStates(
  comm: Communicator,
  files: CheckpointFiles,
  names: PartNames,
  save: number | undefined,
  owner: LoadedStates["of"] = "own",
): Promise<LoadedStates | undefined> {
  await assertSameOnRanks(comm, {
    action: "load",
    kind: "option",
    lines: new Map([["save", save === undefined ? "the newest" : String(save)]]),
    hint: "ask for the same save on every rank",
  });
  const [text = ""] = await onAllRanks(comm, "load", async () => {
    if (comm.rank !== 0) return "";
    const number = save ?? (await committedSaves(files)).at(-1);
    if (number === undefined) return "";
    return JSON.stringify(await readManifest(files, number));
  });
  if (text === "") return undefined;
  const manifest = JSON.parse(text) as Manifest;
  const share = await readShare(comm, files, manifest, names);
  const whole = new Map(
    sharedTensors(manifest.shared).map(([name, { dtype, shape }]): [string, StateTensor] => {
      const length = elementsOf(shape);
      const { bytes, view } = dtypeInfo[dtype];
      return [name, { dtype, shape, data: view(new ArrayBuffer(length * bytes), 0, length) }];
    }),
  );
  const of = comm.size === manifest.size ? owner : "every rank's";
  const perRank: States[] = [];
  for (const [writer, { bytes }] of manifest.files.entries()) {
    const file = decodeTensors(
      await broadcastFile(comm, writer % comm.size, share.get(writer), bytes),
    );
    takePieces(file, manifest, writer, whole);
    if (of !== "own" || writer === comm.rank) {
      perRank.push(ownStates(file, manifest, writer));
    }
  }
  return { manifest, shared: sharedStates(manifest, whole), perRank, of };
}

/** Reads this rank's share of the files: file f is read by rank f modulo the number of ranks. */
async function readShare(
  comm: Communicator,
  files: CheckpointFiles,
  manifest: Manifest,
  names: PartNames,
): Promise<Map<number, Uint8Array>> {
  const ownFiles = new Map<number, Uint8Array>();
  await onAllRanks(comm, "load", async () => {
    assertParts(manifest, names);
    for (let writer = comm.rank; writer < manifest.size; writer += comm.size) {
      ownFiles.set(writer, await readRankFile(files, manifest, writer));
    }
    return "";
  });
  return ownFiles;
}

async function broadcastFile(
  comm: Communicator,
  root: number,
  bytes: Uint8Array | undefined,
  length: number,
): Promise<Uint8Array> {
  const buffer = comm.alloc("uint8", length);
  try {
    if (bytes !== undefined) buffer.copyFrom(new Uint8Array(bytes));
    await comm.broadcast({ recv: buffer, root });
    return await buffer.toHost();
  } finally {
    buffer.dispose();
  }
}

function sharedStates(manifest: Manifest, whole: ReadonlyMap<string, StateTensor>): States {
  return Object.fromEntries(
    manifest.shared.map(([part, { values, tensors }]): [string, State] => {
      const own = tensors.map(([name]): [string, StateTensor] => [
        name,
        whole.get(`${part}/${name}`) as StateTensor,
      ]);
      return [part, { values, tensors: Object.fromEntries(own) }];
    }),
  );
}

/** Refuses a checkpoint with other parts than those to restore. */
function assertParts(manifest: Manifest, names: PartNames): void {
  const found = { shared: manifest.shared.map(([name]) => name), perRank: manifest.perRank };
  for (const kind of ["shared", "perRank"] as const) {
    const odd = [
      ...found[kind].filter((name) => !names[kind].includes(name)).map((name) => `has "${name}"`),
      ...names[kind].filter((name) => !found[kind].includes(name)).map((name) => `lacks "${name}"`),
    ];
    if (odd.length === 0) continue;
    throw new FileFault(
      manifestPath(manifest.save),
      `${odd.join(", ")} among its ${kind} parts (${found[kind].join(", ") || "none"})`,
      "load it into the same parts, by the same names, that were saved",
    );
  }
}

// Restores the parts of a job from the states that were read: all of them on all ranks, or none.

/** The parts of a job, by name. */
interface Parts {
  readonly shared: Readonly<Record<string, Stateful>>;
  readonly perRank?: Readonly<Record<string, RankStateful>> | undefined;
}

/**
 * Restores every part; where one refuses its state on any rank, all parts of all ranks get their old state back.
 *
 * As many ranks as wrote the save may be on a mesh of other extents. So where one of them refuses its own state, `everyRank`
 * reads all states, and each part takes its own from them.
 */
export async function restoreOnAllRanks(
  comm: Communicator,
  parts: Parts,
  loaded: LoadedStates,
  everyRank: () => Promise<LoadedStates | undefined>,
): Promise<void> {
  try {
    await attempt(comm, parts, loaded);
  } catch (refused) {
    const mayLieElsewhere = loaded.of === "own" && Object.keys(parts.perRank ?? {}).length > 0;
    if (!(refused instanceof CheckpointError) || !mayLieElsewhere) throw refused;
    try {
      await attempt(comm, parts, (await everyRank()) ?? loaded);
    } catch (again) {
      // The first refusal is more specific: it is about this rank's own states.
      throw again instanceof CheckpointError ? refused : again;
    }
  }
}

async function attempt(
  comm: Communicator,
  { shared, perRank = {} }: Parts,
  loaded: LoadedStates,
): Promise<void> {
  const { rank, size } = comm;
  const undo: (() => void)[] = [];
  const change = (name: string, part: Stateful, act: () => unknown): void => {
    const before = copyOf(part.state());
    let returned: unknown;
    try {
      returned = act();
    } catch (error) {
      throw refusal(name, error);
    }
    assertReturned(name, returned);
    undo.push(() => part.restore(before));
  };
  try {
    await onAllRanks(comm, "load", async () => {
      for (const [name, part] of Object.entries(shared)) {
        change(name, part, () => part.restore(loaded.shared[name] as State));
      }
      for (const [name, part] of Object.entries(perRank)) {
        const states = loaded.perRank.map((each) => each[name] as State);
        change(name, part, () => {
          if (loaded.of === "own") return part.restore(states[0] as State);
          return part.reshard(states, rank, size);
        });
      }
      return "";
    });
  } catch (error) {
    for (const each of undo.toReversed()) each();
    throw error;
  }
}

/** Refuses a promise, which would fail after the load has succeeded. */
function assertReturned(name: string, returned: unknown): void {
  const { then } = (returned ?? {}) as { readonly then?: unknown };
  if (typeof then !== "function") return;
  Promise.resolve(returned).catch(() => undefined);
  const fault = `part "${name}": found a promise of its restored state, needs all of it on return`;
  throw new Fault(fault, "make restore and reshard of the part synchronous");
}

function refusal(name: string, error: unknown): Fault {
  const why = error instanceof Error ? error.message.split("\n")[0] : String(error);
  const hint = "load it into parts like those that were saved; these are as they were before";
  return new Fault(`part "${name}" refuses its state: ${why}`, hint, error);
}

function copyOf({ values, tensors }: State): State {
  const copies = Object.entries(tensors).map(([name, tensor]): [string, StateTensor] => [
    name,
    { ...tensor, data: tensor.data.slice() },
  ]);
  return { values: structuredClone(values), tensors: Object.fromEntries(copies) };
}
