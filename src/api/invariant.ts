/** Stops on a mistake of the library itself. Callers never catch this; a wrong argument is a `CommError` instead. */
export function invariant(holds: boolean, rule: string): asserts holds {
  if (!holds) throw new Error(`twinccl broke its own rule: ${rule}`);
}
