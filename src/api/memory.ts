/** Memory of a backend, behind every buffer. */
import type { DType } from "./dtype.ts";

/** Memory of one device, addressed in bytes. Writes and fills take effect in call order. */
export interface Memory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  /** True for the caller's host memory, which may be lent to several ranks. */
  readonly borrowed: boolean;
  /** True for device memory of the caller: other memories may hold the same bytes. */
  readonly adopted?: boolean;
  /** True for memory with a size and no contents, which is never written or read. */
  readonly phantom?: boolean;
  /** True once the caller's own host memory was transferred away. */
  readonly detached?: boolean;
  /** Copies bytes in. */
  write(byteOffset: number, bytes: Uint8Array): void;
  /** Copies bytes out, at once or when the promise resolves. */
  read(byteOffset: number, into: Uint8Array): void | Promise<void>;
  /** Sets elements to a value, rounded to the dtype. */
  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void;
  /** Frees the memory: behind the last call with it, but at once in a session that queues work. */
  free(): void;
}
