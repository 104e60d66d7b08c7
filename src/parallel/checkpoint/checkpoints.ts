/**
 * Checkpoints of a job: one file per rank, and a manifest of all files.
 *
 * A save gets its own folder and changes no earlier one. Every rank writes and flushes its file, all exchange checksums, and
 * only then rank 0 gives the manifest its name. So a crash at any moment leaves the earlier checkpoints complete. An unfinished
 * one has no manifest, so it is never loaded.
 */
import { type Communicator, InvalidArgumentError } from "../../api/index.ts";
import { assertOptions } from "../../api/option-kinds.ts";
import { assertCommunicator, assertCount } from "../argument-checks.ts";
import { onAllRanks, onThisRank, withFileName } from "./failures.ts";
import { assertFiles, type CheckpointFiles } from "./files.ts";
import { loadStates, type PartNames, restoreOnAllRanks } from "./load.ts";
import {
  completeSaves,
  type FileEntry,
  format,
  type Manifest,
  manifestPath,
  nextSave,
  prune,
  rankPath,
  sha256Of,
  writeManifest,
} from "./manifest.ts";
import { encodeRankFile, type RankContent, rankContent } from "./rank-file.ts";
import {
  assertParts,
  assertShared,
  byName,
  type CheckpointParts,
  sharedParts,
  statesOf,
} from "./states.ts";

const AS_BEFORE = "earlier saves are as they were";

/** Options of `Checkpoints`. */
export interface CheckpointOptions {
  /** Number of complete saves that are kept; older ones are removed after a save. 2 when left out. */
  readonly keep?: number | undefined;
}

/** A complete save. */
export interface SavedCheckpoint {
  /** Number of the save in these files, from 1. */
  readonly save: number;
  /** The saved step. */
  readonly step: number;
  /** Number of ranks that wrote it. */
  readonly size: number;
}

/**
 * Saves and loads the state of a job.
 *
 * @throws InvalidArgumentError for a `keep` below 1 or not an integer, or files that lack a function.
 * @example
 * const checkpoints = new Checkpoints(comm, directoryFiles("run-7"));
 * const found = await checkpoints.load(parts);
 */
export class Checkpoints {
  readonly #comm: Communicator;
  readonly #files: CheckpointFiles;
  readonly #keep: number;
  /** The running call. */
  #running: string | undefined;

  constructor(comm: Communicator, files: CheckpointFiles, options: CheckpointOptions = {}) {
    assertCommunicator("Checkpoints", comm);
    assertOptions("Checkpoints", options, { keep: true });
    const { keep = 2 } = options;
    assertCount("Checkpoints", "keep", keep, 1);
    assertFiles(files);
    this.#comm = comm;
    this.#files = files;
    this.#keep = keep;
  }

  /**
   * Saves the state of all ranks after step `step`, as it is at the call; later changes are not saved. Collective, one at a
   * time; make no other calls meanwhile, except where the communicator has a stream of its own (`split({ stream: "own" })`).
   *
   * - **Shared parts** are compared by checksum first, and then cut into equal shares, one per rank: none is written twice.
   * - **A crash** at any moment leaves all earlier saves unchanged.
   * - **Cost**: the shared state is copied while its checksums are computed, and a rank's share until it is written.
   *
   * @throws InvalidArgumentError on this rank for an invalid step, part or state, or while another call is running.
   * @throws CollectiveMismatchError on all ranks, naming the part and tensor in which shared state differs.
   * @throws CheckpointError on all ranks when any rank failed to write its file.
   * @example
   * const { save } = await checkpoints.save(step, parts);
   */
  save(step: number, parts: CheckpointParts): Promise<SavedCheckpoint> {
    return this.#oneAtATime("save", async () => {
      assertCount("save", "step", step, 0);
      assertParts("save", parts);
      const { rank, size } = this.#comm;
      // Before the first await, so that the compared and the written state are from the same moment.
      const shared = statesOf(parts.shared);
      const perRank = statesOf(parts.perRank ?? {});
      const draft = {
        format,
        step,
        size,
        shared: sharedParts(shared),
        perRank: Object.keys(perRank),
      };
      const content = rankContent({ rank, size }, draft, shared, perRank);
      await assertShared(this.#comm, step, shared, draft.perRank);
      return await this.#write(draft, content);
    });
  }

  /** Writes all ranks' files and then the manifest, each step after all ranks have completed the previous one. */
  async #write(
    draft: Omit<Manifest, "save" | "files">,
    content: RankContent,
  ): Promise<SavedCheckpoint> {
    const [comm, files] = [this.#comm, this.#files];
    const { rank, size } = comm;
    const { step } = draft;
    const [number] = await onAllRanks(comm, "save", async () => {
      if (rank !== 0) return "";
      const next = await nextSave(files);
      // The room of interrupted saves may be the one that this save needs. A failure is reported by the removal behind it.
      await prune(files, next, Number.POSITIVE_INFINITY).catch(() => undefined);
      return String(next);
    });
    const save = Number(number);
    const entries = await onAllRanks(comm, "save", async () => {
      const bytes = encodeRankFile({ save, rank, size }, content);
      const path = rankPath(save, rank, size);
      await withFileName(path, "could not be written", AS_BEFORE, () => files.write(path, bytes));
      const entry: FileEntry = { path, bytes: bytes.length, sha256: await sha256Of(bytes) };
      return JSON.stringify(entry);
    });
    await onAllRanks(comm, "save", async () => {
      if (rank !== 0) return "";
      const written = entries.map((entry) => JSON.parse(entry) as FileEntry);
      const path = manifestPath(save);
      const write = (): Promise<void> => writeManifest(files, { ...draft, save, files: written });
      await withFileName(path, "could not be written", AS_BEFORE, write);
      return "";
    });
    await onAllRanks(comm, `save ${save} is complete, but earlier ones remain`, async () => {
      if (rank === 0) await prune(files, save, this.#keep);
      return "";
    });
    return { save, step, size };
  }

  /**
   * Gives every part the state of the newest complete save, or of save number `save`. Collective, one at a time.
   *
   * - **Another number of ranks** may load it: shared parts are restored whole, and per-rank parts by `reshard`. So may as many
   *   ranks on a mesh of other extents: if a part refuses its own rank's state, all states are read.
   * - **All or nothing**: when one part refuses its state on any rank, all parts are undone on all ranks.
   * - **Cost**: every file is read by one rank and broadcast to the others; the parts' old state is kept until all have
   *   the new one.
   *
   * @returns The loaded save; `undefined` when there is no complete save and none was required.
   * @throws InvalidArgumentError on this rank for an invalid number or part, or while another call is running.
   * @throws CollectiveMismatchError on all ranks when they request different saves.
   * @throws CheckpointError on all ranks, by name, for a save that is incomplete, mixed or missing, or has other parts. Also
   * for a manifest that does not describe exactly its files and tensors, and for a state that a part refuses: that rank's own
   * error is then the cause. A damaged newest save is never skipped silently.
   * @example
   * const begun = (await checkpoints.load(parts))?.step ?? 0;
   */
  load(
    parts: CheckpointParts,
    options: { readonly save?: number | undefined } = {},
  ): Promise<SavedCheckpoint | undefined> {
    return this.#oneAtATime("load", async () => {
      assertOptions("load", options, { save: true });
      assertParts("load", parts);
      if (options.save !== undefined) assertCount("load", "save", options.save, 1);
      const names = namesOf(parts);
      const loaded = await loadStates(this.#comm, this.#files, names, options.save);
      if (loaded === undefined) return undefined;
      const { save, step, size } = loaded.manifest;
      await restoreOnAllRanks(this.#comm, parts, loaded, () =>
        loadStates(this.#comm, this.#files, names, save, "every rank's"),
      );
      return { save, step, size };
    });
  }

  /**
   * The complete saves, oldest first, as this rank finds them; makes no call.
   *
   * @throws CheckpointError on this rank for a damaged manifest.
   */
  async list(): Promise<SavedCheckpoint[]> {
    const manifests = await onThisRank(this.#comm, "list", () => completeSaves(this.#files));
    return manifests.map(({ save, step, size }) => ({ save, step, size }));
  }

  /** Two at a time would take the same number, and their calls would match each other's. */
  async #oneAtATime<T>(action: string, act: () => Promise<T>): Promise<T> {
    if (this.#running !== undefined) {
      throw new InvalidArgumentError(
        {
          headline: `${action}: a ${this.#running} of these checkpoints is still running, needs its end`,
        },
        { field: action },
      );
    }
    this.#running = action;
    try {
      return await act();
    } finally {
      this.#running = undefined;
    }
  }
}

function namesOf({ shared, perRank = {} }: CheckpointParts): PartNames {
  const names = (of: object): string[] => byName(Object.entries(of)).map(([name]) => name);
  return { shared: names(shared), perRank: names(perRank) };
}
