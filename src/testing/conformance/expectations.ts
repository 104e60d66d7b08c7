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

/** Longest text of a value in an error. */
const longestText = 400;

/** Throws when two values differ. Of long lists and large objects the error has the first difference. */
export function expectEqual(subject: string, found: unknown, needed: unknown): void {
  const [left, right] = [textOf(found), textOf(needed)];
  if (left === right) return;
  const isShort = left.length + right.length <= longestText;
  const { path, ...values } = isShort ? { path: "", found, needed } : differenceOf(found, needed);
  const text = (value: unknown): string => textOf(value).slice(0, longestText);
  throw new Error(`${subject}${path}: found ${text(values.found)}, needs ${text(values.needed)}`);
}

/** The first place at which two different values differ, and what they have there. */
function differenceOf(
  found: unknown,
  needed: unknown,
  path = "",
): { readonly path: string; readonly found: unknown; readonly needed: unknown } {
  const isList = Array.isArray(found) && Array.isArray(needed) && found.length === needed.length;
  const isObject = [found, needed].every((each) => !Array.isArray(each) && Object(each) === each);
  const [left, right] = [found, needed] as Readonly<Record<string, unknown>>[];
  const names = isList || isObject ? Object.keys(needed as object) : [];
  const name = names.find((each) => textOf(left?.[each]) !== textOf(right?.[each]));
  if (name === undefined) return { path, found, needed };
  const step = isList ? `[${name}]` : `.${name}`;
  return differenceOf(left?.[name], right?.[name], path + step);
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
