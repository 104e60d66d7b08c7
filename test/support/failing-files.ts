/** Files that stop working at a chosen operation, as a process that is killed there would leave them. */
import type { CheckpointFiles } from "twinccl/parallel";

/** The moment of failure: before the operation, after half of a write or one file of a folder, or after the operation. */
export type FailureKind = "before" | "torn" | "after";

/** Files that fail from operation number `at` on, counted from 0: the process is dead. */
export class FailingFiles implements CheckpointFiles {
  readonly #files: CheckpointFiles;
  readonly #at: number;
  readonly #kind: FailureKind;
  /** Operations so far, those that failed included. */
  operations = 0;

  constructor(files: CheckpointFiles, at: number, kind: FailureKind) {
    this.#files = files;
    this.#at = at;
    this.#kind = kind;
  }

  get struck(): boolean {
    return this.operations > this.#at;
  }

  write(path: string, bytes: Uint8Array): Promise<void> {
    const half = bytes.subarray(0, bytes.length >> 1);
    return this.#act(
      () => this.#files.write(path, bytes),
      () => this.#files.write(path, half),
    );
  }

  rename(from: string, to: string): Promise<void> {
    return this.#act(() => this.#files.rename(from, to));
  }

  read(path: string): Promise<Uint8Array> {
    return this.#act(() => this.#files.read(path));
  }

  list(folder: string): Promise<string[]> {
    return this.#act(() => this.#files.list(folder));
  }

  remove(path: string): Promise<void> {
    return this.#act(
      () => this.#files.remove(path),
      async () => {
        const names = (await this.#files.list(path)).sort().reverse();
        for (const name of names.slice(0, 1)) await this.#files.remove(`${path}/${name}`);
      },
    );
  }

  async #act<T>(whole: () => Promise<T>, half?: () => Promise<T>): Promise<T> {
    const operation = this.operations++;
    if (operation < this.#at) return whole();
    if (operation === this.#at) {
      if (this.#kind === "torn") await half?.();
      if (this.#kind === "after") await whole();
    }
    throw new Error(`operation ${operation} was killed`);
  }
}
