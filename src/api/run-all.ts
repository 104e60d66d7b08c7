/** Runs every step with the same arguments, also after one threw; then throws the first error. */
export function runAll<A extends readonly unknown[]>(
  steps: Iterable<(...given: A) => void>,
  ...given: A
): void {
  let failure: { readonly error: unknown } | undefined;
  for (const step of steps) {
    try {
      step(...given);
    } catch (error) {
      failure ??= { error };
    }
  }
  if (failure !== undefined) throw failure.error;
}
