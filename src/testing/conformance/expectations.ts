/** Comparison of plain data without a test runner, and bounded waits. */

/** Plain data as one line of text; equal data has equal text. */
export function textOf(value: unknown): string {
  if (typeof value === "bigint") return `${value}n`;
  if (Object.is(value, -0)) return "-0";
  if (typeof value === "string") return JSON.stringify(value);
  if (Array.isArray(value) || ArrayBuffer.isView(value)) {
    return `[${Array.from(value as unknown as Iterable<unknown>, textOf).join(", ")}]`;
  }
  if (typeof value !== "object" || value === null) return String(value);
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  const sorted = fields.sort(([a], [b]) => (a < b ? -1 : 1));
  return `{ ${sorted.map(([name, field]) => `${name}: ${textOf(field)}`).join(", ")} }`;
}

/** Throws when two values differ. */
export function expectEqual(subject: string, found: unknown, needed: unknown): void {
  const [left, right] = [textOf(found), textOf(needed)];
  if (left !== right) throw new Error(`${subject}: found ${left}, needs ${right}`);
}

/** Throws when a statement is false. */
export function expectTrue(statement: string, holds: boolean): void {
  if (!holds) throw new Error(`not so: ${statement}`);
}

/** The error of work that must fail. */
export async function failureOf(subject: string, work: PromiseLike<unknown>): Promise<unknown> {
  const nothing = Symbol("no error");
  const error = await work.then(
    () => nothing,
    (caught: unknown) => caught,
  );
  if (error === nothing) throw new Error(`${subject}: succeeded, needs an error`);
  return error;
}

/**
 * The result of some work, or an error when it takes too long. The timer does not keep the process alive, so that it is not
 * taken for an event that could still wake a rank.
 */
export async function within<T>(milliseconds: number, work: PromiseLike<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Error(`hung for ${milliseconds} ms`)), milliseconds);
    (timer as { unref?(): void }).unref?.();
  });
  try {
    return await Promise.race([work, late]);
  } finally {
    clearTimeout(timer);
  }
}
