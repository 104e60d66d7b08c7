/** Texts of errors. */

/** The first line of an error's message, or of any other thrown value. */
export function firstLine(error: unknown): string {
  const { message } = Object(error) as Partial<Error>;
  return String(message ?? error).split("\n", 1)[0] as string;
}
