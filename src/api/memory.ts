/** Memory as backends provide it: what lies behind a buffer. */
import type { DType } from "./dtype.ts";

/** Memory of one device, addressed in bytes. Writes and fills take effect in the order in which they are made. */
export interface Memory {
  readonly device: string;
  readonly ptr: bigint;
  readonly byteLength: number;
  /** The caller's own host memory, which other ranks may have been given too. */
  readonly borrowed: boolean;
  /** Device memory that the caller's own code owns: other memories may hold the same bytes. */
  readonly adopted?: boolean;
  /** It has a size and no contents: it is never written or read. */
  readonly phantom?: boolean;
  /** True once the caller's own host memory was transferred away. */
  readonly detached?: boolean;
  /** Copies bytes in. */
  write(byteOffset: number, bytes: Uint8Array): void;
  /** Copies bytes out, at once or when the promise is done. */
  read(byteOffset: number, into: Uint8Array): void | Promise<void>;
  /** Sets elements to a value, rounded to the dtype. */
  fill(byteOffset: number, count: number, dtype: DType, value: number | bigint): void;
  /** Gives the memory back. */
  free(): void;
}
