/**
 * Checkpoints of a job: one file a rank, and a manifest that makes them one.
 *
 * A save goes into a folder of its own and touches no earlier one. Every rank writes and flushes its file, all tell each
 * other its checksum, and only then rank 0 gives the manifest its name. So a crash at any moment leaves the earlier
 * checkpoints whole, and an unfinished one without a manifest, which is never taken for one.
 */
import { type Communicator, InvalidArgumentError } from "../../api/index.ts";
import { assertAgreed } from "../agreement.ts";
import type { RankStateful, State, Stateful } from "../state.ts";
import type { CheckpointFiles } from "./files.ts";
import { completeSaves, nextSave, prune } from "./folders.ts";
import { type LoadedStates, loadStates } from "./load.ts";
import {
  type FileLine,
  type Manifest,
  manifestPath,
  rankPath,
  sha256Of,
  writeManifest,
} from "./manifest.ts";
import { encodeRankFile, type States } from "./rank-file.ts";
import { assertStep, byName, statesOf } from "./states-of.ts";
import { named, together } from "./together.ts";

/** What a checkpoint keeps, by names that stay the same between saving and loading. */
export interface CheckpointParts {
  /** What is the same on all ranks: parameters, optimizer, schedule, sampler. Compared before it is saved. */
  readonly shared: Readonly<Record<string, Stateful>>;
  /** What each rank has of its own: random numbers, the trainer with what it has not sent. */
  readonly perRank?: Readonly<Record<string, RankStateful>>;
}

/** Options of `Checkpoints`. */
export interface CheckpointOptions {
  /** How many complete saves are kept; older ones are removed after a save. 2 when left out. */
  readonly keep?: number;
}

/** A complete save. */
export interface SavedCheckpoint {
  /** Counts the saves into these files, from 1. */
  readonly save: number;
  /** The step it was saved at. */
  readonly step: number;
  /** Ranks that wrote it. */
  readonly size: number;
}

/**
 * Saves and loads the state of a job.
 *
 * @throws InvalidArgumentError for a `keep` that is no count of at least 1.
 * @example
 * const checkpoints = new Checkpoints(comm, directoryFiles("run-7"));
 * const found = await checkpoints.load(parts);
 */
export class Checkpoints {
  readonly #comm: Communicator;
  readonly #files: CheckpointFiles;
  readonly #keep: number;

  constructor(comm: Communicator, files: CheckpointFiles, options: CheckpointOptions = {}) {
    const { keep = 2 } = options;
    if (!Number.isSafeInteger(keep) || keep < 1) {
      throw new InvalidArgumentError(
        { headline: `Checkpoints: keep: found ${String(keep)}, needs an integer of at least 1` },
        { field: "keep" },
      );
    }
    this.#comm = comm;
    this.#files = files;
    this.#keep = keep;
  }

  /**
   * Saves the state of all ranks after step `step`. Collective; nothing that is saved may change until it resolves.
   *
   * - **Shared parts** are compared by checksum first, and then cut into equal shares, one a rank: none is written twice.
   * - **A crash** at any moment leaves all earlier saves as they are.
   *
   * @throws CollectiveMismatchError on all ranks, naming the part and tensor in which shared state differs.
   * @throws CheckpointError on all ranks when a file could not be written on any.
   */
  async save(step: number, parts: CheckpointParts): Promise<SavedCheckpoint> {
    const comm = this.#comm;
    assertStep(step);
    const shared = statesOf(parts.shared);
    const perRank = statesOf(parts.perRank ?? {});
    await this.#assertSame(step, shared, Object.keys(perRank));
    const [number] = await together(comm, "save", async () =>
      comm.rank === 0 ? String(await nextSave(this.#files)) : "",
    );
    const { rank, size } = comm;
    const save = Number(number);
    const draft: Omit<Manifest, "files"> = {
      format: "twinccl-checkpoint-1",
      save,
      step,
      size,
      shared: Object.entries(shared).map(([part, { values, tensors }]) => {
        const lines = byName(Object.entries(tensors));
        return [
          part,
          { values, tensors: lines.map(([n, { dtype, shape }]) => [n, { dtype, shape }]) },
        ];
      }),
      perRank: Object.keys(perRank),
    };
    const lines = await together(comm, "save", async () => {
      const bytes = encodeRankFile({ save, rank, size }, draft, shared, perRank);
      const path = rankPath(save, rank, size);
      await named(path, "could not be written", () => this.#files.write(path, bytes));
      const line: FileLine = { path, bytes: bytes.length, sha256: await sha256Of(bytes) };
      return JSON.stringify(line);
    });
    await together(comm, "save", async () => {
      if (rank !== 0) return "";
      const files = lines.map((line) => JSON.parse(line) as FileLine);
      const path = manifestPath(save);
      const write = (): Promise<void> => writeManifest(this.#files, { ...draft, files });
      await named(path, "could not be written", write);
      return "";
    });
    await together(comm, `save ${save} is complete, but earlier ones remain`, async () => {
      if (rank === 0) await prune(this.#files, save, this.#keep);
      return "";
    });
    return { save, step, size };
  }

  /**
   * Gives every part the state of the newest complete save, or of save number `save`. Collective.
   *
   * - **Another number of ranks** may load it: shared parts come back whole, and parts of their own by `reshard`.
   * - **Cost**: every file is read by one rank and broadcast to the others.
   *
   * @returns What was loaded; `undefined` when there is no complete save and none was asked for.
   * @throws CheckpointError on all ranks, by name, for a save that is torn, mixed or missing, or has other parts. A newest
   * save that is damaged is never passed over in silence.
   */
  async load(
    parts: CheckpointParts,
    options: { readonly save?: number } = {},
  ): Promise<SavedCheckpoint | undefined> {
    const { rank, size } = this.#comm;
    const names = {
      shared: byName(Object.entries(parts.shared)).map(([name]) => name),
      perRank: byName(Object.entries(parts.perRank ?? {})).map(([name]) => name),
    };
    const loaded = await loadStates(this.#comm, this.#files, names, options.save);
    if (loaded === undefined) return undefined;
    restoreAll(parts, loaded, rank, size);
    const { save, step, size: writers } = loaded.manifest;
    return { save, step, size: writers };
  }

  /** The complete saves there are, oldest first, as this rank sees them; no call is made. */
  async list(): Promise<SavedCheckpoint[]> {
    const manifests = await completeSaves(this.#files);
    return manifests.map(({ save, step, size }) => ({ save, step, size }));
  }

  /** Refuses to save what ranks do not share. */
  async #assertSame(step: number, shared: States, perRank: readonly string[]): Promise<void> {
    const lines = new Map<string, string>([["step", String(step)]]);
    for (const part of perRank) lines.set(`perRank ${part}`, "present");
    for (const [part, { values, tensors }] of Object.entries(shared)) {
      lines.set(`${part}: values`, JSON.stringify(values));
      for (const [name, { dtype, shape, data }] of Object.entries(tensors)) {
        const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
        lines.set(`${part}/${name}`, `${dtype} [${shape.join(", ")}] ${await sha256Of(bytes)}`);
      }
    }
    await assertAgreed(this.#comm, {
      action: "save",
      kind: "shared state",
      lines,
      hint: "ranks have gone apart: what differs belongs to perRank, or the run is wrong",
    });
  }
}

function restoreAll(
  parts: CheckpointParts,
  { manifest, shared, perRank }: LoadedStates,
  rank: number,
  size: number,
): void {
  for (const [name, part] of Object.entries(parts.shared)) part.restore(shared[name] as State);
  for (const [name, part] of Object.entries(parts.perRank ?? {})) {
    const states = perRank.map((each) => each[name] as State);
    if (manifest.size === size) part.restore(states[0] as State);
    else part.reshard(states, rank, size);
  }
}
